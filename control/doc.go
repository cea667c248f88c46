// Package control is the codec and the connection of the SEQPACKET wires: tenant
// socket, control socket and supervision link (docs/wire.md).
//
// One datagram is one message: a header, a body, and up to four descriptors.
// Every body is a struct with AppendTo and a strict Parse function. One table,
// layouts, says which body and how many descriptors belong to which type; both
// ends refuse anything else.
//
//	asker    Caller.Call ──request──►  Serve ──► Handler     answerer
//	                     ◄──reply────
//
// Serve and Caller close the socket with a peer that breaks the rules. A link
// on which both sides ask is a NewPeer at each end.
//
// Who is trusted: nobody. Everything that comes from a peer is bounded before it
// is allocated, descriptors come in only where a Conn's options say so, at most
// MaxInFlight requests of a socket are served at once, a peer that does not read
// its replies is dropped after the write timeout, and a handler that panics
// costs its asker one E_INTERNAL.
//
// Ownership of descriptors: those of a received Message belong to its receiver;
// those of a reply handed to Serve become Serve's; Send and Call only lend them.
//
// Locks: engine.mu and Caller.mu are leaves, never held across a system call.
// Conn.sending is a lock held across one sendmsg, which ends with the write
// timeout at the latest.
//
// What survives Close: nothing. Serve and Caller.Close return when no handler
// and no goroutine of theirs runs any more.
package control
