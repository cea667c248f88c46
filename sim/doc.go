// Package sim runs the whole service in one process on virtual time, decided by one
// number: a manager's supervision, grants and brokers (manager.Stage), the core of the
// driver (gpu.Device), its rings (ring.Local), and clients, on a device, an IOMMU and a
// clock that are simulated. Faults of all classes are mixed in, and after each step what
// must hold is checked.
//
//	seed ──► Run: one action ──► quiescence (synctest.Wait) ──► trace, invariants ──► …
//	                │
//	                ├ a client does something, also what none should
//	                ├ something fails: client, driver, device, host
//	                └ time passes
//
// What is real: manager (supervise, epoch, back-off, board, broker, grants, faults,
// shares), gpu, ring, ledger, internal/revoke, ddf/dmabuf, the codec of control, and DMA
// memory, which is memfds. What is played: the processes (a driver is an Actor; a kill
// cuts its link, its rings and its grants, and what is left of it may reach nobody),
// sockets, the PCI function with its IOMMU, and the device, which runs jobs one after the
// other at times of its own and says of each what the seed wants.
//
// The device keeps a log of what it has really done. It is the witness: an ok that it
// does not know of is false, and work that begins after its session was closed is a use
// after revoke (check.go).
//
// The same seed gives the same trace, whatever the machine does: only one thing is asked
// for at a time, what follows settles before the next, and no two events of the device
// have the same time. The trace holds what an outsider sees, in an order that is the
// same however goroutines run.
//
// World.go has the run and its clock, act*.go what clients do, faults*.go what goes
// wrong, actor.go, function.go and device.go what is played, check.go what must hold,
// and finish.go how a run ends.
//
// Run must be called within testing/synctest, and is given its Wait.
package sim
