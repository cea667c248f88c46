// Package sim runs the whole service in one process on virtual time, determined by
// one number: a manager's supervision, grants and brokers (manager.Stage), the core
// of the driver (gpu.Device), its rings (ringtest.Local), and clients, on a simulated
// device, IOMMU and clock. It injects faults of all classes, and checks the
// invariants after each step.
//
//	seed ──► Run: one action ──► quiescence (synctest.Wait) ──► trace, invariants ──► …
//	                │
//	                ├ a client does something, valid or not
//	                ├ something fails: client, driver, device, host
//	                └ time passes
//
// These parts are real: manager (supervise, epoch, back-off, board, broker, grants,
// faults, shares), gpu, ring, ledger, internal/revoke, ddf/dmabuf, the codec of
// control, and DMA memory, which is memfds. These parts are simulated: the
// processes (a driver is an Actor; a kill cuts its link, its rings and its grants,
// and its remains must reach nothing), sockets, the PCI function with its IOMMU,
// and the device, which runs jobs one after the other at times of its own and
// reports each as the seed demands.
//
// The device keeps a log of its real work. This log is the witness: an ok without
// an entry in it is false, and work that begins after its session was closed is a
// use after revoke (check.go).
//
// The same seed gives the same trace on every machine: there is only one action at
// a time, its consequences settle before the next, and no two events of the device
// have the same time. The trace contains everything that an outsider sees, in an
// order that does not depend on the scheduling of goroutines.
//
// world.go has the run and its clock, act*.go the clients' actions, faults*.go the
// faults, actor.go, function.go and device.go the simulated parts, check.go the
// invariants, and finish.go the end of a run.
//
// Run must be called within testing/synctest, with its Wait.
package sim
