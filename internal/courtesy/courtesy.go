// Package courtesy has calls that take their time go step by step: between two steps whoever
// has short work goes first. In a driver these are the queues, which share the runtime's
// processors with the calls of all tenants; and where a driver and its manager share the
// host's processor, the driver.
package courtesy

import (
	"runtime"
	"sync/atomic"
)

var (
	waiting atomic.Int32
	others  atomic.Pointer[func()]
)

// Step lets other goroutines run that can. A step of a call, between two of these, takes some
// tens of microseconds.
func Step() {
	waiting.Add(1)
	runtime.Gosched()
	waiting.Add(-1)
	if giveWay := others.Load(); giveWay != nil {
		(*giveWay)()
	}
}

// Waiting reports whether a call waits to take its next step.
func Waiting() bool { return waiting.Load() > 0 }

// ToOthers has each Step of this process end with a call of giveWay, which lets other
// processes go first; nil: not any more.
func ToOthers(giveWay func()) {
	if giveWay == nil {
		others.Store(nil)
		return
	}
	others.Store(&giveWay)
}
