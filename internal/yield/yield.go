// Package yield lets long calls run step by step, and yields between two steps. In a
// driver the queues run then, which share the runtime's processors with the calls of all
// tenants. If a driver and its manager share a processor of the host, the driver runs.
package yield

import (
	"runtime"
	"sync/atomic"
	"time"
)

var others atomic.Pointer[func()]

// Step lets other goroutines run that can. A step of a call, between two of these, takes some
// tens of microseconds.
func Step() {
	runtime.Gosched()
	if yield := others.Load(); yield != nil {
		(*yield)()
	}
}

// ToOthers has each Step of this process end with a call of yield, which lets other
// processes go first; nil: not any more.
func ToOthers(yield func()) {
	if yield == nil {
		others.Store(nil)
		return
	}
	others.Store(&yield)
}

// A thread that yields ends its slice of the processor. Beside a thread that computes all the
// time it runs again only milliseconds later (Linux 6.18, yield_task_fair), so a call of
// several steps would take several times as long. Therefore, after a yield longer than
// longYield, the next steps run without one for pauseFactor times as long, at most maxPause.
const (
	longYield   = 500 * time.Microsecond
	pauseFactor = 4
	maxPause    = 20 * time.Millisecond
)

// Sparingly returns a function that calls yield as long as the others return the processor
// soon, and otherwise only now and then, for a small part of the time. It may be called from
// any goroutine.
func Sparingly(yield func()) func() {
	start := time.Now()
	var pausedUntil atomic.Int64 // until then, in nanoseconds since start
	return func() {
		before := time.Since(start)
		if until := pausedUntil.Load(); until != 0 && int64(before) < until {
			return
		}
		yield()
		after := time.Since(start)
		if took := after - before; took > longYield {
			pausedUntil.Store(int64(after + min(pauseFactor*took, maxPause)))
		}
	}
}
