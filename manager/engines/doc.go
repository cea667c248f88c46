// Package engines keeps the engine processes of one function: a process for each tenant that
// works, which holds the device's nodes and its vendor's library (gpu/backend/engine).
//
//	spawn ─► starting ──ready──► waiting ──Open──► open ──► killed, or dead by itself
//	             │                  ▲  │              │
//	             └─ failed, late    │  └── test ◄─────┘ Kill: dead and reaped, then the
//	                                └──────┘            next one answers a known launch
//
// One engine waits, without a group, so that a tenant's first launch and the test after a
// kill find an open device. Engines start one after the other: a vendor's driver opens
// devices no faster side by side (docs/gpus.md, section 2).
//
// A kill is the device's reset. It has succeeded when the process is reaped and another
// process got the right answer of the device. If that answer does not come, all engines are
// killed, because work of the dead one may still run, and it is asked for once more. After
// that the function is lost: its state is not known, and an operator has to act.
//
// Trust: the driver that asks for engines is half trusted, and gets the link of an engine,
// never the process. An engine is not trusted: it has a vendor's code in it and a tenant's
// programs. Its words are bounded by package control and sanitized, and each wait for it has
// a deadline.
//
// Locks: Pool.mu and Journal.mu are leaves. Neither is held across a call that can block,
// but for the journal's own file.
//
// After Close every process is dead and reaped, or the error names it, and the journal tells
// the next manager.
package engines
