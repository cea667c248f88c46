package ddf

import (
	"time"

	"capgpu/gpuerr"
)

// StormLimit is how many interrupts of one vector in a second are a storm. A working device
// sends 100,000 a second at most; a broken one, or a level that is never lowered, sends as
// many as the bus carries, and would keep a CPU from its work.
const StormLimit = 500_000

// ErrStorm is the error of Wait on a vector that was masked because of a storm, until Unmask.
var ErrStorm = gpuerr.New(gpuerr.Busy, "more than %d interrupts came within a second, so that the vector was masked; quiet the device, then Unmask", StormLimit)

// StormGauge counts the interrupts of one vector. The zero value is ready for use.
type StormGauge struct {
	began time.Time
	count uint64
}

// Count adds n interrupts that were seen now, and reports whether they are a storm. It
// forgets all after one, and each second.
func (g *StormGauge) Count(n uint64, now time.Time) (storm bool) {
	if g.began.IsZero() || now.Sub(g.began) >= time.Second {
		g.began, g.count = now, 0
	}
	if n > StormLimit-g.count {
		*g = StormGauge{}
		return true
	}
	g.count += n
	return false
}
