// Package manager is the core of device-manager: the trusted base of capgpu.
//
// The manager owns the resources that it lends to drivers, and decides which process may ask
// a driver for work. It moves no work itself: once a client holds a control socket, the
// client needs the manager only to open another session.
//
//	tenant.sock ──► broker ──► Attach ──► driver ◄── grants (memory, vectors, audit)
//	tenant.capnp.sock ──► (queue) ──► gpu-gate ──► broker
//
// The manager owns the run directory with its sockets, the audit log, the functions of the
// policy, every DMA memory object lent to a driver, and the gates. Each function is a device
// with an IOMMU domain, and has one driver process after the other. One ledger charges all of
// it: connections to the tenant; memory and vectors to the driver of one epoch, below its
// function.
//
// One driver's life is an epoch, and nothing crosses from one to the next:
//
//	Begin (reset) ─► grants ─► driver … dead, reaped ─► Quiesce ─► unmap ─► scrub ─► charges back
//
// If a function cannot be stopped, or memory not unmapped, the function is wedged: the memory
// is kept, charged and audited, and no driver follows. A function that the host takes away is
// closed as soon as its driver is dead.
//
// Trust: the policy file, the kernel and this process are trusted, and nothing else. A client
// speaks only the broker messages of docs/wire.md, parsed by package control. A driver is
// half trusted. It holds grants, but the ledger bounds each of them, and its Cap'n Proto
// calls come through internal/rpcguard. Its words about itself (the name of its backend, its
// status) are passed on as its claim, and the manager does not act on them. A gate holds one
// client's connection and nothing else.
//
// Locks: lentMemory.mu, servedTenants.mu, watchedDrivers.mu, stateBoard.mu, faultDesk.mu,
// faultGaps.mu, rateLimiter.mu, gatePace.mu, gatePool.mu, logPaces.mu and idleWatch.mu are
// leaves. Inside openSessions.mu only idleWatch.mu is taken; inside zeroPool.mu and seats.mu
// only the ledger's locks. None of them is held across a system call that can block, a call
// to a peer, or a wait for a process. recordOnce.mu and share.mu are held across the append
// that they guard; inside share.mu auditShares.mu is taken. The sink of IOMMU faults runs
// under the lock of its reader.
//
// After Close only the audit logs on disk are left. Every process is dead and reaped, every
// socket removed, every memory object punched and closed, and the ledger is at zero;
// otherwise Close returns an error. Functions are back with their former drivers, except one
// that could not be stopped: the journal of claims names it for the next manager.
// reconcile_crash.go tells what a crash leaves, and how the next manager takes it back.
package manager
