package gpu

import (
	"math"
	"sync"
	"sync/atomic"
)

// pins counts the uses of an object that its close waits for: jobs that the device has, and
// control calls that read it. Once closed it refuses new ones, and drained is closed when
// the last is gone. It is apart from the revocation node because a job must outlive the
// refusal: it is cancelled in the quiesce phase, which begins only after refusing.
//
// Jobs that the device has not got hold no pins. A caller that closes an object has the
// reactor end those (Session.cancelAll), and what the reactor runs itself is over by then.
type pins struct {
	n       atomic.Int64 // plus closedPins once closed
	once    sync.Once
	drained chan struct{}
}

const closedPins = math.MinInt64 / 2

func (p *pins) init() { p.drained = make(chan struct{}) }

// pin reports whether the object may be used; unpin ends the use.
func (p *pins) pin() bool {
	if p.n.Add(1) > 0 {
		return true
	}
	p.unpin()
	return false
}

func (p *pins) unpin() {
	if p.n.Add(-1) == closedPins {
		p.once.Do(func() { close(p.drained) })
	}
}

func (p *pins) closed() bool { return p.n.Load() < 0 }

// close refuses further pins. It reports whether any are left. Idempotent.
func (p *pins) close() (busy bool) {
	for {
		n := p.n.Load()
		if n < 0 {
			break
		}
		if p.n.CompareAndSwap(n, n+closedPins) {
			if n == 0 {
				p.once.Do(func() { close(p.drained) })
			}
			break
		}
	}
	return p.n.Load() != closedPins
}
