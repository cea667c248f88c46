// Package manager is the core of device-manager: the trusted base of capgpu.
//
// It owns what a driver is lent and decides who may ask a driver for work.
// It moves no work itself: once a client holds a control socket, the manager is
// out of the way until the client comes back for another.
//
//	tenant.sock ──► broker ──► Attach ──► driver ◄── grants (memory, vectors, audit)
//	tenant.capnp.sock ──► (a turn) ──► gpu-gate ──► broker
//
// What it owns: the run directory and its sockets, the audit log, the functions of
// the policy (each a device, with an IOMMU domain and one driver process after the
// other), every DMA memory object lent to a driver, and the gates. All of it is
// charged in one ledger: connections to the tenant, memory and vectors to the driver
// of one epoch below its function.
//
// One driver's life is an epoch, and nothing crosses from one to the next:
//
//	Begin (reset) ─► grants ─► driver … dead, reaped ─► Quiesce ─► unmap ─► scrub ─► charges back
//
// What cannot be stopped or unmapped is a wreck: its memory is kept, charged and
// audited, and no driver follows. A function that the host takes away is closed as
// soon as its driver is dead.
//
// Who is trusted: the policy file, the kernel, and this process. Nobody else. A
// client speaks only the broker messages of docs/wire.md, parsed by package
// control. A driver is half trusted: it holds grants, but every one of them is
// bounded by the ledger, its Cap'n Proto calls come through internal/rpcguard,
// and what it says about itself (its backend's name, its status) is passed on
// as its claim and acted on by nobody here. A gate holds one client's
// connection and nothing else.
//
// Locks: grants.mu, stateBoard.mu, faultDesk.mu, faultGaps.mu, pace.mu, gatePace.mu,
// gatePool.mu, logPaces.mu and idleWatch.mu are leaves. Inside tally.mu is only idleWatch.mu;
// inside ahead.mu and seats.mu are only the ledger's. None is held across a system call that can
// block, a call to a peer, or a wait for a process. recordOnce.mu and share.mu are held
// across the append that they are for; inside share.mu is auditShares.mu. The sink of IOMMU
// faults runs under the lock of its reader.
//
// What survives Close: the audit logs on disk. Every process is dead and reaped,
// every socket is removed, every memory object is punched and closed, and the
// ledger is at zero; Close says so if it is not. Functions are with the drivers that
// they had before, but for one that could not be stopped: the journal of claims names
// it for the next manager. What survives a crash, and who takes it back, is told in
// reconcile_crash.go.
package manager
