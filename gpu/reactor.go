package gpu

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/ring"
)

// reactor owns the device: one goroutine does all that is done with it, in rounds.
//
//	mail ─► deadlines ─► look at the rings (visit.go) ─► fair share, device (dispatch.go)
//	  ▲                                                         │
//	  └── sleep, if there was nothing ◄── completions to rings ◄┘ (retire.go)
//
// Its state has no locks. Other goroutines reach it through its mailbox: the backend tells
// of completions, a waiter of a fence tells of its queue, and control calls have it run a
// function and, where they take memory away, wait for that. So whatever a call has seen to
// is over when it returns: the reactor is between two steps then.
//
// It never blocks but in its sleep: resets and questions to the manager are asked by
// goroutines of their own (reset.go, settle.go), programs are loaded and lists recorded
// by the callers, and a backend's Submit does not wait. A visit takes at most one batch of
// a ring.
//
// A bug of the backend that shows in one of its methods costs the device (bug.go):
// everything ends as deviceLost. A bug that shows in a queue costs that queue. A bug of the
// reactor's own books ends the process: what they say could not be trusted, and the driver
// is better replaced.
type reactor struct {
	dev     *Device
	backend *guardedBackend
	limits  backend.Limits
	traits  traits
	mail    mailbox
	poll    poller
	closing sync.WaitGroup // rings that are being closed, resets, questions

	counts

	// The reactor's own.
	fate
	rounds
	share    level
	sent     sentJobs
	recovery recovery
	settling settling
	recent   recentJobs
	here     here
	freeze   *freeze // nil: the device goes
	books    int     // above 0: the reactor's own books are being read or written
}

// counts are for operators.
type counts struct {
	resets atomic.Uint64
	strays atomic.Uint64 // completions of no live job: unknown, doubled or late
	faults atomic.Uint64 // refused by the IOMMU
}

// fate is the device's life, and the reactor's.
type fate struct {
	state    deviceState
	lossTold bool
	lent     []pinned // of jobs that ended with the device, until the backend is closed
	quit     bool     // run ends
}

// rounds is what a round goes through.
type rounds struct {
	letters letters
	active  []*queue // the reactor looks at their rings in each round
	next    int      // of active: the next visit begins there
	ended   []*queue // they have something to retire
	spare   []*queue // room for ended
	rang    []*queue // room for the doorbells that rang
	batches batchPool
	idle    idling
}

// traits is what the backend is like.
type traits struct {
	progresser backend.Progresser      // nil: the backend is none
	preempter  backend.Preempter       // the same
	runner     backend.Runner          // the same; or OKs are settled
	resetter   backend.ContextResetter // the same
	local      backend.LocalMemory     // the same: it works on the host's memory
	mapper     backend.Mapper          // the same: it reaches all that the pool gives
	recorder   backend.Recorder        // the same
	grouped    bool                    // backend.Info.Grouped
	settles    bool                    // an OK is told after Config.Settle
	verifies   bool                    // backend.Info.Verifies
	virtual    bool                    // time is: nobody looks at rings before sleeping
}

// deviceState is what the device is doing.
//
//	running ──reset──► resetting ──► running
//	   └────────┬──────────┘
//	   DeviceGone, or a failed reset ──► lost (for good)
type deviceState uint8

const (
	deviceRunning deviceState = iota
	deviceResetting
	deviceLost
)

var (
	lostOutcome  = outcome.Outcome{Kind: outcome.DeviceLost, Cause: outcome.Gone}
	hangOutcome  = outcome.Outcome{Kind: outcome.TimedOut, Cause: outcome.Hang}
	resetOutcome = outcome.Outcome{Kind: outcome.Innocent, Cause: outcome.Reset}
	errorOutcome = outcome.Outcome{Kind: outcome.Failed, Cause: outcome.DeviceError}
	faultOutcome = outcome.Outcome{Kind: outcome.Failed, Cause: outcome.IOMMUFault}
)

func newReactor(d *Device) (*reactor, error) {
	info := d.cfg.Backend.Info()
	r := &reactor{dev: d, limits: info.Limits, rounds: rounds{batches: batchPool{}}}
	r.backend = &guardedBackend{Backend: d.cfg.Backend, reactor: r}
	t := &r.traits
	t.progresser, _ = d.cfg.Backend.(backend.Progresser)
	t.preempter, _ = d.cfg.Backend.(backend.Preempter)
	t.settles, t.verifies = info.DMA && d.cfg.Settle != nil, info.Verifies
	if !t.settles {
		t.runner, _ = d.cfg.Backend.(backend.Runner)
	}

	t.resetter, _ = d.cfg.Backend.(backend.ContextResetter)
	t.mapper, _ = d.cfg.Backend.(backend.Mapper)
	t.recorder, _ = d.cfg.Backend.(backend.Recorder)
	t.grouped = info.Grouped
	if info.LocalBytes > 0 {
		t.local, _ = d.cfg.Backend.(backend.LocalMemory)
	}

	t.virtual = d.cfg.Rings != nil || d.cfg.newRing != nil
	r.recent.keep = info.DMA
	r.sent.init(info.Limits.MaxJobs, t.preempter)
	r.recovery.changed = make(chan struct{}, 1)

	if t.virtual {
		r.poll = newChannelPoller(&r.mail)
	} else {
		p, err := newEpollPoller()
		if err != nil {
			return nil, gpuerr.New(gpuerr.IO, "the reactor cannot sleep: %v", err)
		}
		r.poll = p
	}

	r.mail.wake = r.poll.wake
	return r, nil
}

// run goes on until end.
func (r *reactor) run() {
	for !r.quit || !r.mail.end() {
		r.deliver()
		now := time.Now()
		r.watch(now)
		if r.freeze == nil {
			r.visit(now)
		}
		r.dispatch()
		r.retireAll()
		r.rest(now)
	}

	r.closing.Wait()
	r.poll.close()
}

// end ends run, when the mail that is on its way has been dealt with.
func (r *reactor) end() { r.mail.post(func() { r.quit = true }) }

// deliver takes in what others have sent.
func (r *reactor) deliver() {
	mail, any := r.mail.take(r.letters)
	if !any {
		return
	}

	r.letters = mail
	r.idle.worked = true

	for _, c := range mail.done {
		r.complete(c)
	}

	for _, f := range mail.calls {
		f()
	}

	for _, q := range mail.due {
		q.isDue.Store(false)
		r.wakeQueue(q)
	}

	r.retireAll() // before anything else is sent: see failure.go
}

// wakeQueue looks at a queue after its client has rung, or a fence of it was reached.
func (r *reactor) wakeQueue(q *queue) {
	if q.over {
		return
	}
	q.look()
	r.activate(q)
}

// join begins to serve a queue. Its client cannot have published anything before.
func (r *reactor) join(q *queue) error {
	if err := r.poll.add(q); err != nil {
		return gpuerr.New(gpuerr.IO, "%v; close other objects and try again", err)
	}

	q.intake.taken, _, _ = q.ring.Marks()
	q.session.queues = append(q.session.queues, q)

	if r.state == deviceLost {
		q.beginDrain(lostWithDevice(), true)
	}

	r.activate(q)
	return nil
}

// leave ends that. Nothing of the queue is left.
func (r *reactor) leave(q *queue) {
	r.poll.remove(q)
	r.deactivate(q)
	if q.outlet.failed > 0 { // its client is told by the end of the ring
		q.session.failures.untold -= q.outlet.failed
	}

	all := q.session.queues
	if i := slices.Index(all, q); i >= 0 {
		last := len(all) - 1
		all[i], all[last] = all[last], nil
		q.session.queues = all[:last]
	}

	if q.intake.batch != nil {
		r.batches.put(q.intake.batch, q.mostArgs)
		q.intake.batch = nil
	}
}

// retireAll retires what has ended, and publishes it.
func (r *reactor) retireAll() {
	for len(r.ended) > 0 {
		all := r.ended
		r.ended = r.spare[:0]
		for _, q := range all {
			q.outlet.mustLook = false
			r.retire(q)
		}
		clear(all)
		r.spare = all
	}
}

// retire is what follows when jobs of the queue have ended.
func (r *reactor) retire(q *queue) {
	defer r.caught(q)
	switch {
	case q.drain != nil:
		q.drainOn()
		return
	case r.frozen():
		return // Thaw looks again
	}

	q.retire()
	q.publish()

	if q.poll.held && q.mayBegin() {
		q.poll.held = false
		r.activate(q)
	}
}

// batchPool has the batches that no queue needs now, by the bytes of arguments that they
// have room for.
type batchPool map[uint32][]*ring.Batch

// keptBatches is how many of a size are kept: mostly one queue at a time has one.
const keptBatches = 4

func (p batchPool) get(args uint32) *ring.Batch {
	free := p[args]
	if len(free) == 0 {
		return ring.NewBatch(args)
	}
	last := len(free) - 1
	p[args] = free[:last]
	return free[last]
}

func (p batchPool) put(b *ring.Batch, args uint32) {
	if free := p[args]; len(free) < keptBatches {
		p[args] = append(free, b)
	}
}

// idling is how the reactor comes to sleep.
type idling struct {
	worked bool      // something was done in this round
	looked time.Time // at the doorbells
}

const (
	// mostLook is how long the reactor looks at the ring of a client that was active lately
	// before it has that client wake it.
	mostLook = 50 * time.Microsecond
	// doorbellEvery is how often a reactor that has work looks at the doorbells.
	doorbellEvery = 20 * time.Microsecond
)

// rest ends a round: it sleeps if there is nothing to do, and else looks at the doorbells
// now and then.
func (r *reactor) rest(now time.Time) {
	i := &r.idle
	busy := i.worked || len(r.ended) > 0 || len(r.active) > 0 && r.freeze == nil
	i.worked = false
	if busy {
		if now.Sub(i.looked) >= doorbellEvery {
			i.looked = now
			r.hear(r.poll.look(r.rang[:0]))
			runtime.Gosched()
		}
		return
	}

	// A sender that posts from here on finds the reactor asleep, or its mail is found now.
	if r.mail.asleep.Store(true); r.mail.full.Load() || r.quit {
		r.mail.asleep.Store(false)
		return
	}

	next := r.due(now)
	if next == 0 {
		r.mail.asleep.Store(false)
		return
	}

	r.recovery.sleeps(now, next)
	rang := r.poll.sleep(next, r.rang[:0])
	r.mail.asleep.Store(false)
	r.hear(rang)
	i.looked = time.Now()
}

// hear activates queues that rang.
func (r *reactor) hear(rang []*queue) {
	for _, q := range rang {
		_ = q.ring.Drain() // that the client has hung up is told by Arm
		r.wakeQueue(q)
	}
	clear(rang)
	r.rang = rang
}
