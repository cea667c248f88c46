// Package ring is the queue that a client shares with the driver: entries of 64 bytes one
// way, with their arguments in an arena beside them, completions of 32 bytes the other
// (docs/wire.md, which is version 5).
//
//	client                                        driver
//	Push ──► entry, arena    Flush ──► sqTail ──► TakeMany ──► sqHead
//	Poll, Wait ◄── completions ◄───────────────── CompleteMany ──► Publish
//
// A batch is many Pushes and one Flush; neither side makes a system call while
// the other is awake.
//
// The driver's end needs no goroutine of its own. One goroutine serves all rings of a device:
// Ready looks whether there is anything, TakeMany copies it out, Publish answers. It sleeps
// when every ring was asked for a wake (Arm), in one poll of all the pipes (Doorbell, Drain),
// and takes its questions back when it is awake (Disarm). WaitWork is the same for a
// goroutine that serves one ring. The client's end waits with Wait.
//
// A side that has nothing to do arms its wait flag, looks again, and sleeps on its pipe; a
// side that publishes looks at the flag afterwards. Both are sequentially consistent, so one
// of the two sees the other.
//
// Trust: neither side trusts the other. Each reads a word that the other writes once per
// pass, bounds it, and uses the copy. The header is written once by the driver,
// which never reads it, and copied out by the client before use. An entry is
// copied out before it is looked at. A driver may end a client's queue, a client only its
// own; neither can make the other fault, block or go out of bounds. Pages that the client
// takes away end the driver's side of that ring (Server.guard).
//
// Goroutines: TakeMany, Arm, Disarm, Drain and WaitWork are one goroutine's; CompleteMany,
// Publish and Flush may be another's. Push to Rollback of a client are one goroutine's, or of
// callers with a lock of their own, which they hold around Client.Close as well; Poll and
// Wait are another's. Server.Close, Ready, Published, Marks and Client.Err may be called from
// anywhere, at any time.
//
// Locks: one in a Server, one around Poll of a Client. They are uncontended unless one of
// the calls from anywhere meets another, and never held while sleeping. No call of one ring
// takes the lock of another.
//
// After Close nothing of this side is left. The other side keeps its mapping,
// takes what was published, and is then told the closing code.
package ring
