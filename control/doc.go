// Package control is the codec and the connection of the SEQPACKET wires: tenant
// socket, control socket and supervision link (docs/wire.md).
//
// One datagram is one message: a header, a body, and up to four descriptors. Every
// body is a struct with AppendTo and a strict Parse function. One table, layouts,
// assigns a body and a number of descriptors to each type; both ends refuse
// anything else.
//
//	asker    Caller.Call ──request──►  Serve ──► Handler     answerer
//	                     ◄──reply────
//
// Serve and Caller close the socket when the peer breaks the rules. A link on which
// both sides send requests has a NewPeer at each end.
//
// Trust: no peer is trusted. Everything from a peer is bounded before it is
// allocated. Descriptors are accepted only if a Conn's options allow it. At most
// MaxInFlight requests of a socket are served at once. A peer that does not read
// its replies is dropped after the write timeout. A handler that panics costs its
// caller one E_INTERNAL.
//
// Ownership of descriptors: those of a received Message belong to its receiver;
// those of a reply handed to Serve become Serve's; Send and Call only lend them.
//
// Locks: engine.mu and Caller.mu are leaves, never held across a system call.
// Conn.sending is a lock held across one sendmsg, which ends with the write
// timeout at the latest.
//
// Nothing survives Close. Serve and Caller.Close return when no handler and no
// goroutine of theirs runs any more.
package control
