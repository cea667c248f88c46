// Package ring is the queue that a client shares with the driver: entries of a word
// one way, which name what a kept slot says, or else 64 bytes with arguments in an
// arena beside them; completions of a word the other (docs/wire.md).
//
//	client                                              driver
//	Push ─► kept slot ─► place    Flush ─► sqTail ────► TakeMany ─► sqHead
//	   └─► slot, arena ─┘
//	Poll, Wait ◄─ words ◄───────────────────────────── CompleteMany ─► Publish
//
// A batch is many Pushes and one Flush; neither side makes a system call while
// the other is awake. Who has nothing to do looks for a while, if that paid lately
// (wait.go; SpinTake, for as long as the driver asks), arms its wait flag, looks again,
// and sleeps on its pipe; who publishes looks at the flag afterwards. Both are
// sequentially consistent, so one of the two sees the other.
//
// Who is trusted: nobody. Each side reads a word that the other writes once per
// pass, bounds it, and uses the copy. The header is written once by the driver,
// which never reads it, and copied out by the client before use. An entry is
// copied out before it is looked at; what a kept slot said is the driver's own copy.
// A driver may end a client's queue, a client only its own; neither can make the
// other fault, block or go out of bounds. Pages that the client takes away end the
// driver's side of that ring (Server.guard).
//
// Goroutines: TakeMany, SpinTake, Serve, Ready and WaitWork are one goroutine's, or, while that
// one is in WaitWork, another's that watches the ring (watch.go); CompleteMany, Publish
// and Server.Flush may be another's; Push and Client.Flush one's; Poll and Wait
// one's. Close and Free may be called from anywhere, at any time.
//
// Locks: one per side and direction, uncontended unless Close is called, never
// held while sleeping or signalling. Close takes the submitting one first. Serve has both of
// the driver's as long as it goes on, and its servant calls nothing of the ring.
//
// What survives Close: nothing of this side. The other side keeps its mapping,
// takes what was published, and is then told the closing code.
package ring
