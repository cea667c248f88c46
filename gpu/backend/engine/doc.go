// Package engine is a backend that runs jobs in engine processes (ddf.Engines): each holds the
// library of a GPU's vendor, which this process does not, and works for one group of contexts, a
// tenant.
//
//	Submit ─► queue ─► advance ──────────────► run ─► engine ─► answer ─► Sink.Complete
//	                     │  ▲ not ready
//	                     └─►runDispatcher: open, import, compile, record
//
// Programs are verified and instrumented here: an engine gets rewritten modules only, and what it
// says of a trap is decoded and bounded here. An engine is not believed: an answer to nothing, a
// slot that no program writes, a number that cannot be, are its end (bury), and cost its group's
// jobs that it had, nobody else's. Client memory, programs, queues and outcomes are here: the
// next engine imports, compiles and records again.
//
// Jobs begin in the order of Submit, but for those of a group of which the engine is being
// killed: others pass them. One engine works at a time, on jobs of one context. Up to
// wire.MaxAhead runs of it are ordered before the first has ended, where those before are known
// to be short: a run that was ordered cannot be taken back. Between contexts the engine is empty,
// so that ResetContext is exact.
//
// A job is stopped by the stop word of its trap buffer, then by the kill of its engine. After
// each kill ddf.Engine says that nothing of the dead process touches memory, and that the device
// answers; where it does not the device is gone.
//
// An engine is opened with the first memory or job of its group, and kept. When all places are
// taken, one that is idle and has no local memory makes room.
//
// Locks: Backend.mu, then proc.sending; neither is held across a call to ddf.Engines, the Sink, or
// a wait. Goroutines: runDispatcher, and for each engine runReader; and one for each engine that
// is being buried. After Close none is left.
//
// Files: backend.go and limits.go what it is, program.go programs, memory.go and local.go memory,
// plan.go a job as an engine is told it, queue.go and dispatch.go its way there, answer.go and
// finish.go back, proc.go and call.go an engine, bury.go its death, reset.go resets.
package engine
