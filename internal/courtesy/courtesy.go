// Package courtesy has calls that take their time go step by step: between two steps whoever
// has short work goes first. In a driver these are the queues, which share the runtime's
// processors with the calls of all tenants; and where a driver and its manager share the
// host's processor, the driver.
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

// Who gives way ends its slice of the processor, and beside somebody who computes all the
// time it comes back milliseconds later (Linux 6.18, yield_task_fair): a call of some steps
// would take as many of these. So where that took longer than longGive, the next ones have
// restsAfter times as long, at most longestRest, without.
const (
	longGive    = 500 * time.Microsecond
	restsAfter  = 4
	longestRest = 20 * time.Millisecond
)

// Sparingly is giveWay where those who go first are quick, and otherwise only now and then,
// for a small part of the time. It may be called from any goroutine.
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
