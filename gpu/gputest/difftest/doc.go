// Package difftest runs the driver's core against gpu/gputest/refmodel: random submissions, most
// of them nearly good, go through a real ring and a real queue to a device that does
// nothing, and each completion is compared with the one that the model says, bit by bit.
//
//	generate.go ─► model ─► what is to come back ─┐
//	     └─► raw_unsafe.go (a ring written by hand) ─► gpu ─► device.go ─► completions
//
// The device sums up what it is told of each job and answers the sum as the job's device
// time. So the completion of what was accepted says, too, which memory, which grid and
// which arguments the device was given, and the books of device time say so of all of
// it. While it has a job it writes over all of the ring that the driver has taken: a core
// that looks at an entry twice is found.
//
// A Run is deterministic but for where the driver cuts its batches, which makes no
// difference to what is to come back.
package difftest
