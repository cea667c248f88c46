// Package gpu is the core: it decides what may run on one device, and tells the
// truth about how it ended.
//
// Objects form a tree, and closing one closes all below it:
//
//	device ─► tenant ─► session ─► buffer, fence, program, list, queue
//	                       └─► restricted session ─► …
//
// Each is a node of internal/revoke and dismantled in the order refuse, quiesce,
// unmap, scrub, release. Each is charged in the ledger before it exists and
// given back after it was scrubbed; after Device.Close every account is at zero.
// Session.Close answers when nothing of the session runs or can; the rest is given back
// behind the answer (reclaim.go).
//
// One goroutine, the reactor, owns the device. Work flows along the files:
//
//	ring ─► reactor.go, visit.go ─► submit.go take ─► check.go resolve and charge
//	     ─► fair.go pick ─► dispatch.go ─► backend ─► complete.go ─► settle.go
//	     ─► retire.go ─► ring
//
// Short work runs on the reactor itself where the backend offers that (dispatch.go); all
// other work is submitted. A list (list.go) is work that was resolved once; a replay of it
// (replay.go) is one job.
//
// Control calls run on their callers' goroutines. They reach what is the reactor's by its
// mailbox (mailbox.go).
//
// Trusted are the caller (driver/session, the driver's main loop) and the DMA pool. Not
// trusted are the client on the other side of a ring, which sees nothing but handles of its
// own session and may do anything to its memory at any time, and the device: its
// completions may be missing, late, doubled or made up.
//
// Work that does not end ok takes along what its session had published before that was told
// (failure.go). A trap poisons its session (poison.go): the device begins nothing more of
// that session's context, what waits is cancelled, and calls that make work are refused. An
// access that the IOMMU refused (fault.go) does the same, and has the device reset before
// anything else is sent.
//
// Promised is: every entry taken from a ring and every promised point of a fence ends exactly
// once, and never as ok unless the device said so, for this job, first; nor before it is
// known, where the device moves memory by itself, that the IOMMU refused nothing of it
// (settle.go). A missed deadline has its typed outcome within Config.HangBound (watch.go).
// The jobs of one queue run in order. Nothing reaches memory that was taken back: a job pins
// what it uses while the device has it, and a caller that closes an object has the reactor
// end the job and waits for the pins.
//
// Lock order: Device.mu, then table.mu; fence.mu, then mailbox.mu, where a waiter is told of;
// memory.mu and reclaimer.mu are leaves, and so are the ledger's and the ring's.
// None is held across a call of the DMA pool, the audit log or the backend, nor across a wait;
// nobody waits for the reactor with one that it takes. An object is closed from outside its
// session: see remove.
//
// The data path makes no allocation and no system call for an entry, unless the client
// sleeps.
//
// Goroutines: the reactor, runReclaim and runAudit belong to the Device, and so do those by
// which the reactor asks for what blocks (reset.go). Device.Close waits for all.
//
// After Close no goroutine, descriptor, mapping or charge of the package is
// left. Memory that a client still maps is its own and empty.
package gpu
