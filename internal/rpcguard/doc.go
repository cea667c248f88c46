// Package rpcguard is the Cap'n Proto RPC of this service: a small server-side
// vat that faces untrusted peers, the one constructor of every capability that
// is handed to a peer, and the transport of our own Go clients.
//
// # Trust
//
// A peer of Serve is not trusted with anything. go-capnp's rpc.Conn cannot face
// such a peer: one message of 48 or 136 bytes ends the whole process (see the
// regression tests), and it has no limits. So Serve does not use it. It speaks
// the protocol of a Level 1 vat that hosts capabilities and imports none, with
// the standard wire format, and takes from go-capnp only the message accessors,
// the generated method tables and the per-object call queue. It accepts
//
//   - frames within Limits: their memory grows as bytes arrive, not by claim;
//   - messages in which every pointer has been walked: in bounds, at most 32
//     deep, no word reached twice in all (no cycles, no sharing);
//   - Bootstrap, Call, Finish, Release, Disembargo (of the sender's loopback,
//     which is echoed) and Abort; Unimplemented is dropped, all else aborts;
//   - targets and arguments that name exports or unfinished questions of this
//     very connection. Capabilities of the peer are refused: the service never
//     calls a client;
//   - no descriptors: the kernel drops those that a peer attaches.
//
// Pipelining works, also as an argument: a call on, or with, a promised answer
// waits in the vat until that answer has returned and then goes straight to the
// capability, in order. A field that holds no capability is a typed exception.
//
// Every bound has a written policy. Too many unsent bytes: the peer is not read
// until it has read. Too many unreturned calls, or too many bytes of them: the
// peer is not read for a moment, which throttles one that makes many short calls;
// if they do not end, it is read on and further calls fail as overloaded. Too
// many capabilities held: that call fails as overloaded. Too many open
// questions, or any breach of the protocol: Abort and close. A peer that does
// not read for Limits.WriteTimeout is dropped.
//
// # Capabilities
//
// Export makes a capability from a generated method table. Every method of it is
// behind a Gate (checked when the call starts and again before its results
// leave), recovers from panics, and turns errors into exceptions by Exception.
// Methods of one object run one at a time, in order, and so do those of objects
// that share a Line; one that blocks calls Go first. A method must end when its
// context does.
//
// # Locks
//
// vat.mu guards the tables and is a leaf, except that it is held while a call is
// put into an object's queue, which never blocks or calls back. Gates have no
// lock of their own.
//
// # Lifetimes
//
// Nothing outlives Serve: when it returns, every call has returned, Spec.Shutdown of every
// capability that only the peer held has run, and the socket is closed. An object runs
// Shutdown once, on its own goroutine, after its last reference died and its last call ended.
// A Shutdown may wait only for work that ends by itself or through the Shutdown of the
// bootstrap capability, which is released last and runs beside the others.
package rpcguard
