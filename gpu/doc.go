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
// Session.Close answers when nothing of the session runs or can; what is left to give
// back is given back behind it (reclaim.go).
//
// Work flows along the files:
//
//	ring ─► queue.go runQueue ─► submit.go take ─► check.go resolve and charge
//	     ─► engine.go fair share ─► backend ─► complete.go Complete ─► settle.go
//	     ─► submit.go retire ─► ring
//
// A list (list.go) is work that was resolved once; a replay of it (replay.go) goes the same
// way, as one job.
//
// Who is trusted: the caller (driver/session, the driver's main loop) and the
// DMA pool. Not trusted: the client on the other side of a ring, who sees
// nothing but handles of its own session and may do anything to its memory at
// any time; and the device, whose completions may be missing, late, doubled or
// made up.
//
// A trap poisons its session (poison.go): the device begins nothing more of that
// session's context, what the engine holds of it is cancelled, and calls that make
// work are refused. It is the device that makes sure of the first; the core would
// come too late. An access that the IOMMU refused (fault.go) does the same, and has
// the device reset before anything else is sent.
//
// What is promised: every entry taken from a ring and every promised point of a
// fence ends exactly once, and never as ok unless the device said so, for this
// job, first; nor before it is known, where the device moves memory by itself, that
// the IOMMU refused nothing of it (settle.go). A missed deadline has its typed
// outcome within Config.HangBound.
// The jobs of one queue run in order: the engine submits them so and the device
// is a FIFO (backend.Backend). Nothing reaches memory that was taken back: what is
// submitted pins it.
//
// Lock order: Device.mu, then table.mu; memory.mu, strikes.mu, reclaimer.mu, engine.mu and
// fence.mu are leaves, and so are the ledger's and the ring's; under engine.mu the ledger's is
// taken, for a record (recovery.go). None is held across a call of the DMA pool, the audit
// log or the backend (whose Submit may call back; Progress is one load), nor across a wait.
// An object is closed from outside its session: see remove.
//
// What the data path does per entry: no allocation, no system call unless the
// client sleeps, no reading of the clock.
//
// Goroutines: runDevice (watchdog, reset, loss), runSettle, runReclaim and runAudit
// belong to the Device, runQueue and runDoorbell to their queue. Device.Close waits for all.
// runQueue looks at its ring for a while before it sleeps.
//
// After Close no goroutine, descriptor, mapping or charge of the package is
// left. Memory that a client still maps is its own and empty.
package gpu
