package gpu

import (
	"runtime"
	"time"
)

// A queue whose work is all done looks at its ring for a while before it sleeps, if
// that lately paid: what comes meanwhile needs neither a system call of the client nor
// a goroutine to be woken. It counts looks and reads no clock; one takes 20 to 50 ns.
//
// No more queues do that at a time than there are processors, and each lets other
// goroutines run between two rounds.
type spinner struct {
	// paid grows when a look found something, or when something came soon after the
	// queue went to sleep; it shrinks when all looks were in vain.
	paid  int
	slept time.Time // when it last went to sleep with nothing in the device
}

const (
	spinLooks = 64 // of one round: 1 to 3 µs
	maxPaid   = 8  // so many times two rounds: up to 50 µs
	// soon is when spinning would have paid.
	soon = 50 * time.Microsecond
)

// linger is what a queue does that has nothing to do, before it sleeps. False means
// that it may.
func (q *queue) linger(idle *int) (again bool, err error) {
	*idle++
	if q.head == q.tail && q.mayFetch() {
		if *idle > 1 {
			return false, nil
		}
		return q.spinForWork()
	}
	if *idle >= spinRounds {
		return false, nil
	}
	runtime.Gosched()
	return true, nil
}

// spinForWork reports whether there is a reason not to sleep.
func (q *queue) spinForWork() (again bool, err error) {
	e := q.session.dev.engine
	defer e.spinning.Add(-1)
	if e.spinning.Add(1) > e.maxSpinning {
		return false, nil
	}
	for range 2 * q.spin.paid {
		n, err := q.fetch(spinLooks)
		switch {
		case n > 0:
			q.spin.paid = min(q.spin.paid+1, maxPaid)
			return true, nil
		case err != nil:
			return false, err
		case q.called():
			return true, nil
		}
		runtime.Gosched()
	}
	q.spin.paid = max(q.spin.paid-1, 0)
	return false, nil
}

// called reports whether somebody else wants something of the queue.
func (q *queue) called() bool {
	return len(q.cancels) > 0 || isClosed(q.session.dev.lost) || !q.node.Live()
}

// sleeps and rung tell the spinner how long it was until the client came.
func (s *spinner) sleeps() { s.slept = time.Now() }

func (s *spinner) rung() {
	if time.Since(s.slept) < soon {
		s.paid = min(s.paid+1, maxPaid)
	}
}
