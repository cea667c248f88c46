package gpu

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"capgpu/ring"
)

// When many queues of a tenant are woken within a short time, a sweeper goes from one to
// the next and serves those that sleep on their rings: without a system call of the client
// or of the driver, without another goroutine, and with one set of buffers for all, which
// stays in a cache.
//
//	runQueue: awake, has serving ──(sleepOnRing)──► asleep ──(woken, or roused)──► awake
//	sweeper:                                   Watch ─► turn ─► Watch ─► … ─► Resign
//
// A turn is a round of serve, and whoever has queue.serving is as good as runQueue. Of what
// is left after it (work in the device, a turn of the device that has not come, a wait for
// a fence, a client that broke the rules) the sweeper knows nothing: it rouses runQueue.
// A queue whose work is long is left to itself for a while, in the midst of a turn, too, so
// that what the device does in between is for the engine to say (fair.go), and not for the
// order of a sweep: nobody else looks at the rings of the others meanwhile.

// crowd is the queues that one sweeper goes round: of one tenant, or a part of them where
// there are many processors.
type crowd struct {
	mu sync.Mutex
	// +checklocks:mu
	queues []*queue // in the order in which they came
	// +checklocks:mu
	places uint64      // given to queues until now
	swept  atomic.Bool // there is a sweeper; set with the lock
	// +checklocks:mu
	since time.Time // when the present window began,
	// +checklocks:mu
	woken int // and how many were woken in it
	// +checklocks:mu
	rest time.Duration // that follows a sweep that was not worth it,
	// +checklocks:mu
	until time.Time // and when it is over
	// +checklocks:mu
	turns uint64 // of sweepers that have ended
}

const (
	// crowdLeast is how many queues are a crowd, and how many are woken in a crowdWindow
	// before there is a sweep.
	crowdLeast  = 16
	crowdWindow = time.Millisecond
	// After a sweep that was not worth it there is none for crowdRest, and after each more
	// of them for twice as long, at most crowdRestMost. It is a time, and not more that are
	// woken: how many can be woken in a window depends on how much each of them asks for.
	crowdRest     = time.Millisecond
	crowdRestMost = 64 * time.Millisecond
	// sweepWorth is how many looks at a ring cost as much as a wake.
	sweepWorth = 64
	// sweepAgain is how many looks in vain another turn in the same round counts as.
	sweepAgain = 32
	// sweepNear and sweepFar are how many queues it looks at behind the last one, and, if none
	// of those has anything, on its way round, before it looks at the last one again.
	sweepNear, sweepFar = 4, 8
	// sweepPause is after how many looks others run; a turn counts as sweepTurn more.
	sweepPause, sweepTurn = 64, 6
	// musterPause is the same while it only looks, before its first turn.
	musterPause = 512
	// sweepNanos of device time make a turn a long one, and aloneFor is how many times the
	// queue is woken by its client after one that leaves something, or two in a row: one may be
	// the host's doing.
	sweepNanos = 20_000
	// sweepWaits is how often others run before a queue is left to wait for the device by
	// itself. It then sleeps, and whoever comes after it waits for it to wake, and so on.
	sweepWaits = 64
	aloneFor   = 16
)

// sweptState is what a queue has for those who sweep, guarded by queue.serving.
type sweptState struct {
	watched bool  // since runQueue fell asleep
	roused  bool  // since then
	long    bool  // its last turn was
	alone   int   // wakes until it is swept again
	most    int64 // what bursts.took comes to at the end of the turn; 0: there is none
	bug     any   // a panic of who sweeps, with its stack
}

// crowds is where the queues of a tenant go: to one crowd for each two processors.
type crowds struct {
	mu sync.Mutex
	// +checklocks:mu
	all []*crowd
	// +checklocks:mu
	next int
}

// join finds a crowd for a queue.
func (c *crowds) join(q *queue) *crowd {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		for range max(1, runtime.GOMAXPROCS(0)/2) {
			c.all = append(c.all, &crowd{})
		}
	}
	to := c.all[c.next%len(c.all)]
	c.next++
	to.join(q)
	return to
}

func (c *crowd) join(q *queue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.places++
	q.place = c.places
	c.queues = append(c.queues, q)
}

func (c *crowd) leave(q *queue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, found := slices.BinarySearchFunc(c.queues, q.place, func(q *queue, place uint64) int { return int(q.place) - int(place) })
	if found {
		c.queues = slices.Delete(c.queues, i, i+1)
	}
}

// rung counts a wake by a client, and begins a sweep.
func (c *crowd) rung(d *Device) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.swept.Load() || len(c.queues) < crowdLeast || d.engine.burster == nil {
		return
	}
	now := time.Now()
	if now.Sub(c.since) > crowdWindow {
		c.since, c.woken = now, 0
	}
	if c.woken++; c.woken < crowdLeast || now.Before(c.until) {
		return
	}
	c.woken = 0
	c.swept.Store(true)
	d.wg.Go((&sweeper{crowd: c}).run)
}

// sweeper is one sweep of a crowd: some rounds, as long as they are worth it.
type sweeper struct {
	crowd  *crowd
	queues []*queue // as of the last round
	turns  int
	patience
	*scratch
}

func (w *sweeper) run() {
	looks := w.sweep()
	w.clean()
	w.resign(w.turns*sweepWorth >= looks)
}

// sweep looks and serves, until for long there was too little to serve. It says how often
// it looked.
//
// Where the queues are that have something, route says; what is needed to serve those after
// the present one is asked for meanwhile (ahead.go).
func (w *sweeper) sweep() (looks int) {
	w.round()
	w.left = w.most()
	looks = w.muster()
	since := 0
	look := func(i int) bool {
		looks++
		since++
		some := w.visit(w.queues[i])
		if w.looked(i, some); some {
			w.turns++
			since += sweepTurn
		}
		return some
	}
	for r := (route{}); w.left > 0 && len(w.queues) >= crowdLeast; {
		w.ahead(r.last + 1)
		if r.step(len(w.queues), look) {
			w.round()
		}
		if since >= sweepPause {
			since = 0
			runtime.Gosched()
		}
	}
	return looks
}

// route is the way of a sweep. Clients often come in the same order: so it goes on behind the
// queue that had something last, in that order, and looks at that one once more. When none of
// those behind it has anything it goes round all of them, a few at a time, and then on from
// where something is. So either way no queue is passed that was not looked at.
type route struct {
	last int // had something, the last of those
	far  int // on the way round
}

// step looks at some of n queues, until one behind the last one has something, and says
// whether it is round.
func (r *route) step(n int, look func(i int) bool) (round bool) {
	at := r.last % n
	look(at)
	for i := range sweepNear {
		if next := (at + 1 + i) % n; look(next) {
			r.last = next
			r.passed(at, next, n)
			return next <= at
		}
	}
	for range sweepFar {
		far := r.far % n
		r.far = (far + 1) % n
		if look(far) {
			r.last = far
			return r.far == 0
		}
		if r.far == 0 {
			return true
		}
	}
	return false
}

// passed has the way round go on behind next, if it was to go on between at and that: those
// were looked at.
func (r *route) passed(at, next, n int) {
	if between := (next - at + n) % n; (r.far%n-at-1+n)%n < between {
		r.far = (next + 1) % n
	}
}

// muster takes charge of all that sleep, and serves none of them yet. A client that comes
// to one after the other is soon past the sweeper else, and wakes each of them.
func (w *sweeper) muster() (looks int) {
	for i, q := range w.queues {
		if i%musterPause == musterPause-1 {
			runtime.Gosched()
		}
		w.see(q, false)
	}
	return len(w.queues)
}

// patience is how many looks in vain a sweep lasts: the more queues have something, the
// longer. Those few that always have, while the others sleep, are served sooner by their
// own goroutines: so a queue counts once in a round.
type patience struct {
	left   int
	served []bool // had a turn in this round
}

func (p *patience) most() int { return 2*len(p.served) + 16*sweepWorth }

// begin begins a round of so many queues.
func (p *patience) begin(queues int) {
	p.served = slices.Grow(p.served[:0], queues)[:queues]
	clear(p.served)
}

// looked counts a look at a queue, and the turn that it had if there was something.
func (p *patience) looked(queue int, something bool) {
	p.left--
	switch {
	case !something:
	case p.served[queue]:
		p.left -= sweepAgain
	default:
		p.served[queue] = true
		p.left = min(p.left+sweepWorth, p.most())
	}
}

// round begins one: queues come and go.
func (w *sweeper) round() {
	c := w.crowd
	c.mu.Lock()
	defer c.mu.Unlock()
	w.queues = append(w.queues[:0], c.queues...)
	clear(w.queues[len(w.queues):cap(w.queues)])
	w.patience.begin(len(w.queues))
	w.clean()
}

// resign has all of them sleep on their own again. worth says that it was.
func (w *sweeper) resign(worth bool) {
	c := w.crowd
	c.mu.Lock()
	w.queues = append(w.queues[:0], c.queues...)
	c.turns += uint64(w.turns)
	c.mu.Unlock()
	for _, q := range w.queues {
		w.release(q)
	}
	c.mu.Lock() // not before: there is one at a time
	defer c.mu.Unlock()
	if c.swept.Store(false); worth {
		c.rest = 0
		return
	}
	c.rest = min(max(2*c.rest, crowdRest), crowdRestMost)
	c.until = time.Now().Add(c.rest)
}

// release has a queue sleep on its own again.
//
// +checklocksignore: TryLock is not understood
func (w *sweeper) release(q *queue) {
	if !q.serving.TryLock() {
		return // awake, or about to be: see unsweep
	}
	defer q.serving.Unlock()
	defer w.caught(q, new(bool))
	if q.sweep.watched && q.ring.Resign() != ring.Nothing {
		q.sweep.roused = true
		q.rouse()
	}
	q.sweep.watched = false
}

// visit looks at a queue, and serves it. It reports whether there was something.
func (w *sweeper) visit(q *queue) (some bool) { return w.see(q, true) }

// see is visit, which also only looks: what there is to serve, the next visit finds.
//
// +checklocksignore: TryLock is not understood
func (w *sweeper) see(q *queue, serves bool) (some bool) {
	if !q.serving.TryLock() {
		return false
	}
	defer q.serving.Unlock()
	defer w.caught(q, &some)
	if s := &q.sweep; s.roused || s.alone > 0 {
		return false
	}
	switch q.ring.Watch() {
	case ring.Nothing:
		q.sweep.watched = true
		return false
	case ring.Entries:
		q.sweep.watched = true
		if !serves || !q.bidden() && w.turn(q) {
			return true
		}
	case ring.Full:
		if !q.sweep.watched { // it sleeps, or is about to, and has not missed anything
			return false
		}
	}
	q.sweep.roused = true
	q.rouse()
	return true
}

// caught is deferred: a bug on the way is the queue's, whose own goroutine sees to it.
func (w *sweeper) caught(q *queue, some *bool) {
	p := recover()
	if p == nil {
		return
	}
	if q.inEngine {
		panic(p) // see serveToTheEnd
	}
	q.sweep.bug = fmt.Sprintf("%v\n%s", p, debug.Stack())
	w.scratch = nil // the queue's, whatever is in it
	q.sweep.roused, q.sweep.most, *some = true, 0, true
	q.rouse()
}

// turn is a round of serve. It reports whether the queue can sleep on.
func (w *sweeper) turn(q *queue) (done bool) {
	q.forget() // also in its own buffers, so before it gets others
	own, begun := w.lend(q)
	q.sweep.most = q.burst.took + sweepNanos
	q.passSpoils()
	_, err := q.take()
	for waits := 0; err == nil && q.asks() && !q.called() && !q.leaves() && waits < sweepWaits; waits++ {
		if runtime.Gosched(); q.turnCame() {
			_, err = q.take()
		}
	}
	q.flush()
	q.goOn(keptLook)
	long := q.leaves()
	rest := err != nil || q.head != q.tail || !q.mayFetch() || q.turnCame() || q.burst.replay != nil
	alone := long && (rest || q.sweep.long)
	if q.sweep.most, q.sweep.long = 0, long && !alone; alone {
		q.sweep.alone = aloneFor
	}
	if rest {
		w.scratch = own
		w.clean()
		return false
	}
	q.scratch, q.begun = own, begun
	return !alone && !q.owes.Load() // which flush may have set
}

// leaves reports whether a sweeper serves the queue, and has for long: what is left is not
// for it.
func (q *queue) leaves() bool { return q.sweep.most != 0 && q.burst.took >= q.sweep.most }

// lend gives a queue the sweeper's buffers, and returns its own, and how far it is there.
func (w *sweeper) lend(q *queue) (own *scratch, begun int) {
	if n := q.batchArgs(); w.scratch == nil || w.mostArgs != n {
		w.scratch = newScratch(n)
	}
	own, begun = q.scratch, q.begun
	q.scratch = w.scratch
	q.begun = len(q.batch.Entries)
	return own, begun
}

// clean leaves nothing of any queue in the buffers.
func (w *sweeper) clean() {
	if w.scratch != nil {
		w.scratch.clean()
	}
}

// watched reports whether a sweeper will look at the ring of a queue that has nothing to
// do, so that it need not look itself before it sleeps. One that waits for the device has.
func (q *queue) watched() bool { return q.head == q.tail && q.crowd.swept.Load() && q.mayFetch() }

// unsweep follows a sleep of runQueue, which has serving again.
func (q *queue) unsweep() {
	s := &q.sweep
	if s.watched {
		q.ring.Unwatch()
	}
	if s.watched, s.roused = false, false; s.bug != nil {
		panic(s.bug)
	}
}
