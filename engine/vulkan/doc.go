// Package vulkan is a host.Device on Vulkan: GPUs behind their vendors' drivers, and Mesa's
// lavapipe, which computes on the host's processor.
//
// The library that it opens is a hundred megabytes of foreign code, with the device's nodes in
// hand. It runs in an engine process, for one tenant, and sees programs only that were admitted
// and instrumented (program/instrument): they say what they did wrong in the trap buffer, of
// which this package is the other side.
//
// # The trap buffer
//
// There is one for the device, with a slot for each entry of each list that is recorded.
// Entries are numbered by their slots, through all lists; 0 is no entry.
//
//	head   0  first    none; the entry that ended early; or 0, all: later entries are skipped
//	       4  stop     the number of the last run that is to stop; 0: none
//	      64  run      by turn: the number of the run
//	      96  before   by turn: first, as the run found it
//	256 · (1 + entry)  slots
//
// # A run
//
// A run is one submit, with the timeline semaphore set to its number behind it:
//
//	between    only if runs are ahead or one ended early
//	recording  barrier, time stamp, the entries, time stamp, barrier to the host
//
// A list has as many recordings as runs of it were ever under way together, each with time
// stamps of its own; the later ones are made when they are needed. between is recorded once
// for each turn, which is a run's number modulo wire.MaxAhead.
//
// Each launch is followed by a barrier, because it may end early, and no entry begins behind
// that: the next finds first below its number and returns. Copies and fills are kernels of this
// package that look at first, too, and cannot end early; they have barriers only where memory
// says so. At most one entry of a run ends early.
//
// The kernel between keeps that between runs. It writes first down for the host, and makes it
// 0 if an entry ended early, so that all entries of all later runs are skipped, until Resume
// makes it none again. It takes back a stop that was for earlier runs. A run that is submitted
// alone needs none of it.
//
// # Goroutines and locks
//
// The frame calls Wait from one goroutine, Stop from any, and all else from one more, which
// alone touches the queues. mu is held for some stores and loads, and across the submit, which
// does not wait; and where a run ended early, until the next one, which is skipped, has ended.
//
// After Close nothing is left but the library itself, and threads that it may keep.
//
// Files, as a run goes: open choose and open a device, describe, check its loops (selftest);
// turns what is made for all runs; block and memory memory; compile; plan entries into steps;
// slots, sets and stamps; record; submit; wait; errors.
package vulkan
