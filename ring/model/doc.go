// Package model explores every interleaving of the ring's protocol (docs/wire.md,
// package ring), of one goroutine that serves many rings, and of the two wakes in package
// gpu: between a queue and its doorbell, and between a queue and the device. It is all tests.
//
// A model is a few threads, each a list of steps (machine_test.go). A step is one
// atomic action: at most one access to something shared, and any amount of
// thought. Its names are those of the code it stands for:
//
//	client_test.go, wait_test.go   ring/push.go, ring/client.go, ring/wait.go: Push, Flush, poll, Wait
//	driver_test.go                 ring/batch.go, complete.go, sleep.go, server.go: TakeMany, CompleteMany, Flush, Arm, WaitWork, Close
//	reactor_test.go                ring/sleep.go: one goroutine, many rings, one poll of their doorbells
//	queue_test.go                  gpu/queue.go, gpu/submit.go, gpu/doorbell.go; the device
//
// Word 0 of a completion stands for its lap (word 1 on the wire), the others for the rest.
// Server.published is a word of its own here, where the code has a lock about it.
//
// TakeMany is a Take for each entry that it copies and a Consumed, which stores sqHead.
// Looking again and again before a wait flag is armed only loads, and is no step.
//
// The explorer (explore_test.go) visits every state that can be reached, breadth
// first, and each once; so a finding comes with a shortest trace, and what it logs
// as interleavings is a count of paths through those states, not of runs. A
// protocol that is changed is changed here in the same commit. A variant is another
// list of steps.
//
// # What is checked
//
// In every state: an entry and a completion are read as they were written, in
// order and once, whole, neither early nor stale; no slot is written over before it
// was copied out; positions only go forward and stay within their queues; neither
// side accuses the other of breaking the rules. In states that nothing leaves:
// every thread is done, or sleeps rightly: a lost wake is a state in which the client
// sleeps for good. At the end: everything was taken, completed and seen; after
// Close, everything completed was seen before the code. And the end can be reached
// from every state.
//
// mistakes_test.go has changes of the protocol that must be found, each with the
// property it breaks, and some that look bad and are not. go test -v shows the
// traces, go test -deep explores longer runs. A step that no model ever comes to is
// an error, too.
//
// # The memory
//
// Every thread has a buffer of stores that it alone sees (a load looks there first)
// and that reach the memory one by one, at any time:
//
//   - TSO: in order. This is x86-TSO (Sewell, Sarkar, Owens, Zappa Nardelli, Myreen:
//     x86-TSO, CACM 53(7), 2010). Swap and CompareAndSwap wait until the buffer
//     is empty, and so do a signal and a wait: the kernel takes the pipe's lock.
//   - PSO: plain stores of different words in any order, an atomic store after all
//     before it. This is the part of arm64 that matters for plain slots behind an atomic
//     position. A load is never late here; where the code relies on the order of
//     two loads, a seeded mistake swaps them.
//
// An atomic Store only waits in the buffer, as a release does. Go's memory model
// makes it sequentially consistent, but a program built with the race detector does
// not (see view in package ring), and the protocol must hold there, too. A word that
// a lock or a channel guards is changed at once. So Go's own orders are stronger than what
// is explored.
//
// # Reduction
//
// A reduced model lets slots be copied out in the moment in which they are known to
// be there, and plain stores be seen only with the next release, or fence, of their
// thread. No failure is missed: reading earlier and writing later only show more
// stale reads, and writing over a slot is then an error as soon as the reader has not
// given it back, which it does after copying. It makes TSO and PSO the same. Models
// that are called whole are not reduced, and find the same.
//
// # What is not covered
//
// Peers that break the rules (ring/hostile_test.go), pages that are taken away, a
// client's Close and death, arguments and the arena, Published and CancelQueue, a
// batch's bound, Take and Close at the same time (a lock), waits of the driver that
// end early other than by Close. Runs are bounded: rings of 1 to 4 entries, up to 8
// submissions, buffers of 10 stores. A wake pipe is assumed to keep what it was
// told and never to block (internal/shm tests it).
package model
