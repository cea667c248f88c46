package gpu

import "sync/atomic"

// A queue that has one turn after the other, and nobody else wants the device, is lent the
// next ones: it takes each with one instruction and ends it with another, without the
// engine's lock.
//
//	none ──endTurn lends──► rests ◄──begin, end──► runs
//	  ▲                       │                     │
//	  └────callBackLocked─────┴───────────────└again┘ (and this turn ends as any other does)
//
// A queue that looks at its ring for what comes next keeps it in between (held.go): one
// burst ends and the next begins with one instruction, which nobody waits for. Whoever calls
// it back waits then until the queue sees that, as it would for a burst.
//
// Whoever wants the device for something else, or is to know that nothing runs, calls it back
// first, under engine.mu: there is a loan only while the engine has nothing else to do and
// nobody who waits. So does the watchdog at each of its looks, so a loan is as long as a tick
// at most, and a burst that does not end is found like any.
//
// What the bursts cost the fair share has when the loan is called back. All that have ended
// were the queue's alone: it owes nobody for them.
type loan struct {
	// word is 0, or loanRests or loanRuns, plus loanNano times the cost of the bursts that have
	// ended.
	word atomic.Uint64
	runs uint64 // the queue's: word, if a burst of the loan has begun; 0: none
	left int    // the queue's: bursts that it may still begin
}

const (
	loanRests = 1
	loanRuns  = 2
	loanNano  = 4
	// loanBursts is how many bursts a loan has ids for.
	loanBursts = 1 << 16
)

// begin reports whether the queue has the turn, by its loan.
func (l *loan) begin() bool {
	w := l.word.Load()
	if w&loanRests == 0 || l.left == 0 {
		return false
	}
	runs := w - loanRests + loanRuns
	if !l.word.CompareAndSwap(w, runs) {
		return false
	}
	l.runs = runs
	l.left--
	return true
}

// end ends a turn that began so. False means that it is one for endTurn: it did not, or the
// loan was called back.
func (l *loan) end(nanos int64) bool {
	runs := l.runs
	if runs == 0 {
		return false
	}
	l.runs = 0
	return l.word.CompareAndSwap(runs, runs-loanRuns+loanRests+loanNano*uint64(max(nanos, minJobCost)))
}

// again ends a turn that began by the loan, and begins the next one. False means that it has
// done neither: the loan was called back, or is used up.
func (l *loan) again(nanos int64) bool {
	next := l.runs + loanNano*uint64(max(nanos, minJobCost))
	if l.left == 0 || !l.word.CompareAndSwap(l.runs, next) {
		return false
	}
	l.runs = next
	l.left--
	return true
}

// goes reports whether a turn by the loan was not called back.
func (l *loan) goes() bool { return l.word.Load() == l.runs }

// rest gives back a turn that began by the loan, and in which nothing ran. False means that
// the loan was called back, and that it is one for endTurn.
func (l *loan) rest() bool {
	runs := l.runs
	if !l.word.CompareAndSwap(runs, runs-loanRuns+loanRests) {
		return false
	}
	l.runs = 0
	l.left++
	return true
}

// lendLocked lends the turn to the queue that is about to give it back.
//
// +checklocks:e.mu
func (e *engine) lendLocked(j *job) {
	e.turn.holder = j
	j.estimate = 0
	e.nextTurnLocked(j, (1+loanBursts)*maxBurst) // and whoever begins one goes on to the next
	l := &j.queue.burst.loan
	l.runs, l.left = 0, loanBursts
	l.word.Store(loanRests)
}

// callBack is callBackLocked, of whoever has a loan.
func (e *engine) callBack() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.callBackLocked()
}

// callBackLocked ends the loan, if there is one. Then nobody has the turn, or who has it
// ends it under the lock.
//
// +checklocks:e.mu
func (e *engine) callBackLocked() {
	j := e.turn.holder
	if j == nil {
		return
	}
	l := &j.queue.burst.loan
	for w := l.word.Load(); w != 0; w = l.word.Load() {
		if !l.word.CompareAndSwap(w, 0) {
			continue // it begins or ends
		}
		if w&loanRests != 0 {
			e.turn.holder = nil
		}
		f := j.queue.session.flow
		e.top.spend(f, int64(w/loanNano))
		e.top.spend(f, 0) // and the present comes along
		return
	}
}
