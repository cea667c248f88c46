package manager

import (
	"time"

	"golang.org/x/sys/unix"

	"capgpu/internal/courtesy"
	"capgpu/internal/shm"
)

// A driver answers in microseconds, and so do its threads sleep in between. Where it has
// the processor together with others, as with a manager that zeroes a tenant's memory, the
// kernel would let each go on for the 3 ms of its slice.

// driverSlice is the slice of the driver's threads (sched_setattr(2), sched_runtime of an
// ordinary thread, from Linux 6.12 on): the least that there is. It makes their share of
// the processor no larger; they have it sooner, and in smaller pieces. Older kernels take no
// notice.
const driverSlice = 100 * time.Microsecond

// withShortSlice calls f on this thread with that slice, which what f starts inherits, with all its
// threads. The caller is locked to the thread.
func withShortSlice(yes bool, f func() error) error {
	if attr, err := unix.SchedGetAttr(0, 0); yes && err == nil && attr.Policy == unix.SCHED_NORMAL {
		short := *attr
		short.Runtime = uint64(driverSlice)
		if unix.SchedSetAttr(0, &short, 0) == nil {
			defer func() { _ = unix.SchedSetAttr(0, attr, 0) }() // as it was
		}
	}
	return f()
}

// pagesPiece is how many bytes of pages are made or given back at a time, some tens of
// microseconds of work; then whoever has the processor with us goes first.
const pagesPiece = 256 << 10

// punchYields is for how long others go first while memory is punched out: what takes
// punchGrace would count as held up by somebody.
const punchYields = punchGrace / 4

// punchOut gives the pages of memory back, piece by piece.
func punchOut(m *shm.Memory, bytes uint64) error { return punchPieces(m, bytes, yieldSparingly) }

var yieldSparingly = courtesy.Sparingly(shm.GiveWay)

func punchPieces(m *shm.Memory, bytes uint64, giveWay func()) error {
	if bytes == 0 {
		return nil
	}
	start, p := time.Now(), newPunching(m, bytes)
	p.run(func() {
		if time.Since(start) < punchYields {
			giveWay()
		}
	})
	return p.wait()
}
