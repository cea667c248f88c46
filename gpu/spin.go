package gpu

import (
	"runtime"
	"time"

	"capgpu/ring"
)

// A queue whose work is all done looks at its ring for a while before it sleeps, if
// that lately paid: what comes meanwhile needs neither a system call of the client nor
// a goroutine to be woken. It counts looks and reads no clock.
//
// Fewer queues do that at a time than there are processors, and each lets other
// goroutines run between two rounds.
type spinner struct {
	// rounds is how often the queue looks. They are all there are when that found
	// something, or when something came soon after the queue went to sleep; they halve
	// when all looks were in vain.
	rounds int
	slept  time.Time // when it last went to sleep with nothing in the device
	kept   int64     // about how long it has gone on that goOn has not counted yet,
	// which has counted the entries of its ring up to this position
	counted uint64
}

const (
	// passRounds is spinRounds where the turn is about to come before a job that is long.
	passRounds    = 4 * spinRounds
	maxSpinRounds = 20
	spinRound     = 2500 * time.Nanosecond
	// soon is when spinning would have paid, and waking is counted in.
	soon = 80 * time.Microsecond
)

// spinLooks is how many looks a round has: some spinRound.
var spinLooks = ring.SpinsFor(spinRound)

// linger is what a queue does that has nothing to do, before it sleeps. False means
// that it may.
func (q *queue) linger(idle *int) (again bool, err error) {
	*idle++
	if q.head == q.tail && q.mayFetch() {
		if q.turnCame() { // since take looked, and the device waits for the queue
			return true, nil
		}
		if *idle > 1 {
			return false, nil
		}
		return q.spinForWork(idle)
	}
	if *idle >= spinRounds && (*idle >= passRounds || !q.asks() || !q.session.dev.engine.passesSoon(q.asker())) {
		return false, nil
	}
	runtime.Gosched()
	return true, nil
}

// spinForWork reports whether there is a reason not to sleep. What it finds, it may have done.
func (q *queue) spinForWork(idle *int) (again bool, err error) {
	e := q.session.dev.engine
	defer e.spinning.Add(-1)
	if e.spinning.Add(1) > e.maxSpinning {
		return false, nil
	}
	for round := 0; round < q.spin.rounds; round++ {
		n, bursts, err := q.lookForWork(spinLooks)
		if bursts > 0 {
			q.spin.rounds, *idle, round = maxSpinRounds, 0, 0
		}
		switch {
		case n > 0:
			q.spin.rounds, *idle = maxSpinRounds, 0
			if q.serveBurst() {
				round = -1
				continue
			}
			return true, nil
		case err != nil:
			return false, err
		case q.bidden() || q.spin.kept >= keptQuick:
			return true, nil
		}
		q.goOn(int64(spinRound))
		runtime.Gosched()
	}
	q.spin.rounds /= 2
	return false, nil
}

// lookForWork looks at the ring for one round of so many looks, and takes n entries. With the
// device on loan, or at once to be had for what is there, it runs what comes, so many bursts.
func (q *queue) lookForWork(spins int) (n, bursts int, err error) {
	if q.mayHold() {
		could := false
		switch b := &q.burst; {
		case spins == 0 && q.sweep.most == 0 && !q.ring.Ready(): // a sweeper has seen entries
		case b.loan.word.Load() != 0 && !q.crowd.swept.Load():
			bursts, could, err = q.hold(spins)
		case spins == 0:
			bursts, could, err = q.holdTurn()
		}
		if could || err != nil {
			return len(q.batch.Entries) - q.begun, bursts, err
		}
	}
	n, err = q.fetch(spins)
	return n, 0, err
}

// called reports whether somebody else wants something of the queue.
func (q *queue) called() bool {
	return q.cancelling.Load() > 0 || q.session.dev.isLost.Load() || !q.live.Live() || q.burst.stale.Load()
}

// bidden is called, also when the device is to stop. A replay that is being played goes on
// then, to its end.
func (q *queue) bidden() bool {
	return q.called() || q.owes.Load() || q.session.dev.freezing.Load() != nil
}

// sleeps and rung tell the spinner how long it was until the client came.
func (s *spinner) sleeps() { s.slept = time.Now() }

func (s *spinner) rung() {
	if time.Since(s.slept) < soon {
		s.rounds = maxSpinRounds
	}
}
