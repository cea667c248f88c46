package manager

import (
	"time"

	"golang.org/x/sys/unix"
)

// A driver answers within microseconds, and its threads sleep in between. If it shares the
// processor with a process that computes, such as a manager that zeroes memory, the kernel
// lets either run for its slice of 3 ms before the other.

// driverSlice is the slice of the driver's threads (sched_setattr(2), sched_runtime of an
// ordinary thread, Linux 6.12 and later): the smallest that the kernel takes. Their share of
// the processor stays the same; they get it sooner and in smaller pieces. Older kernels
// ignore it.
const driverSlice = 100 * time.Microsecond

// withShortSlice calls f on this thread with driverSlice. Processes that f starts inherit it
// with all their threads. The caller is locked to the thread.
func withShortSlice(enable bool, f func() error) error {
	if attr, err := unix.SchedGetAttr(0, 0); enable && err == nil && attr.Policy == unix.SCHED_NORMAL {
		short := *attr
		short.Runtime = uint64(driverSlice)
		if unix.SchedSetAttr(0, &short, 0) == nil {
			defer func() { _ = unix.SchedSetAttr(0, attr, 0) }() // restore
		}
	}
	return f()
}
