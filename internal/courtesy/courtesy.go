// Package courtesy lets long calls run step by step, and yields between two steps. In a
// driver the queues run then, which share the runtime's processors with the calls of all
// tenants. If a driver and its manager share a processor of the host, the driver runs.
package courtesy

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
	if giveWay := others.Load(); giveWay != nil {
		(*giveWay)()
	}
}

// ToOthers has each Step of this process end with a call of giveWay, which lets other
// processes go first; nil: not any more.
func ToOthers(giveWay func()) {
	if giveWay == nil {
		others.Store(nil)
		return
	}
	others.Store(&giveWay)
}

// A thread that yields ends its slice of the processor. Beside a thread that computes all the
// time it runs again only milliseconds later (Linux 6.18, yield_task_fair), so a call of
// several steps would take several times as long. Therefore, after a yield longer than
// longGive, the next steps run without one for restsAfter times as long, at most longestRest.
const (
	longGive    = 500 * time.Microsecond
	restsAfter  = 4
	longestRest = 20 * time.Millisecond
)

// Sparingly returns a function that calls giveWay as long as the others return the processor
// soon, and otherwise only now and then, for a small part of the time. It may be called from
// any goroutine.
func Sparingly(giveWay func()) func() {
	start := time.Now()
	var rests atomic.Int64 // until then, in nanoseconds since start
	return func() {
		before := time.Since(start)
		if until := rests.Load(); until != 0 && int64(before) < until {
			return
		}
		giveWay()
		after := time.Since(start)
		if took := after - before; took > longGive {
			rests.Store(int64(after + min(restsAfter*took, longestRest)))
		}
	}
}
