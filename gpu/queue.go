package gpu

import (
	"context"
	"reflect"
	"runtime"
	"runtime/debug"
	"sync/atomic"

	"capgpu/gpuerr"
	"capgpu/internal/revoke"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

// queue is a ring and the in-order work in it.
//
// runQueue owns everything but what is marked otherwise: it takes entries,
// retires them in order, and is the only one to write to the client's ring, so
// that a client can hold up nobody but itself. With nothing in the device it sleeps on
// the ring. Else it lends the submission side of the ring to runDoorbell before it
// sleeps (armed) and takes nothing until that has come back; so both can wait, one for
// the client and one for the device.
//
//	live ──close, loss, or a broken ring──► draining (all taken entries end) ──► done
type queue struct {
	session  *Session
	h        Handle
	node     *revoke.Node
	ring     serverRing
	argBytes uint32
	charges  [4]ledger.Receipt // slots, memory, descriptors, and those until its client has it
	lease    *ledger.Lease     // in flight
	meter    *ledger.Meter     // device time

	batch      *ring.Batch // what was taken from the ring last
	begun      int         // entries of it that are dealt with
	taken      uint64      // position in the ring behind the batch
	jobs       []*job      // by position, made when first used
	head, tail uint64      // positions: retired until, begun until
	discard    int         // entries published before the last cancel and not begun yet
	waiting    *job        // the wait that holds the queue
	skipping   bool        // a wait failed: work until the next signal is cancelled
	inEngine   bool        // in a call of the engine

	told      []ring.Completion // not written to the ring yet; made when first used
	unflushed bool              // completions were written and not published
	spoilt    []*spoil          // of completions that are not published
	owes      atomic.Bool       // to tell the session's spoils how far it is

	wake     chan struct{} // capacity 1: a job ended or a fence was reached
	sleeping atomic.Bool   // runQueue wants to be woken
	cancels  chan chan struct{}
	done     chan struct{} // closed when runQueue has ended

	// The engine's, guarded by engine.mu.
	readyHead, readyTail   *job
	circleNext, circlePrev *queue

	group     outcome.Outcome
	waiter    waiter
	marks     []mark // guarded by spoils.mu, as is past: what has ended, as far as was told
	past      uint64
	spanBytes []uint64

	armed   bool                 // runDoorbell has the submission side of the ring
	deaf    bool                 // the client has closed its end: nothing can wake the doorbell
	arm     chan context.Context // to runDoorbell
	rang    chan error           // from it
	slumber atomic.Pointer[slumber]
}

// serverRing is the driver's end of a ring: *ring.Server, or a model of it in tests
// on virtual time.
type serverRing interface {
	HandOut() (ring, sq, cq int, err error)
	TakeMany(b *ring.Batch, most int) (int, error)
	Ready() bool
	Published() int
	Marks() (taken, published, collected uint64)
	CompleteMany(cs []ring.Completion)
	Publish(cs []ring.Completion)
	WaitWork(ctx context.Context) error
	Close(code gpuerr.Code)
}

// ringsOf is how a Device makes rings.
func ringsOf(c *Config) func(ring.Config) (serverRing, error) {
	make := ring.NewServer
	if c.Rings != nil {
		make = c.Rings
	}
	return func(cfg ring.Config) (serverRing, error) {
		server, err := make(cfg)
		if err != nil {
			return nil, err // not a nil *ring.Server in an interface
		}
		return server, nil
	}
}

const (
	defaultQueueEntries  = 256
	defaultQueueArgBytes = 64 << 10
	// minQueueCharge is how many queueSlots the smallest queue costs: what it has
	// besides its entries (goroutines, descriptors, a mapping) is the same for all.
	minQueueCharge = 64
	// pollsForDevice is how often a queue whose work is in the device looks again before it
	// sleeps, and pollsOfRing how often one that has none looks at its ring. Each look lets
	// other goroutines run.
	pollsForDevice = 100
	pollsOfRing    = 200
	// toldAtOnce is how many completions are written to the ring together, at most.
	toldAtOnce = ring.BatchEntries
)

// CreateQueue makes a ring and starts to serve it. Zero sizes take defaults.
func (s *Session) CreateQueue(entries, argBytes uint32) (QueueInfo, error) {
	if err := s.enterToWork(); err != nil {
		return QueueInfo{}, err
	}
	defer s.node.Leave()
	orElse(&entries, defaultQueueEntries)
	orElse(&argBytes, defaultQueueArgBytes)
	c := &s.dev.cfg
	switch {
	case entries < ring.MinEntries || entries > min(c.MaxQueueEntries, ring.MaxEntries) || entries&(entries-1) != 0:
		return QueueInfo{}, gpuerr.New(gpuerr.Invalid, "entries is %d; it must be a power of two from %d to %d", entries, ring.MinEntries, min(c.MaxQueueEntries, ring.MaxEntries))
	case argBytes > min(c.MaxArgBytes, ring.MaxArgBytes) || argBytes%64 != 0:
		return QueueInfo{}, gpuerr.New(gpuerr.Invalid, "argBytes is %d; it must be a multiple of 64, at most %d", argBytes, min(c.MaxArgBytes, ring.MaxArgBytes))
	}
	if err := s.banned(); err != nil {
		return QueueInfo{}, err
	}
	if err := s.audited(); err != nil {
		return QueueInfo{}, err
	}
	q := newQueue(s, entries, argBytes)
	if err := q.open(entries); err != nil {
		return QueueInfo{}, err
	}
	s.audit("queue.create", "queue=%#x entries=%d argBytes=%d", uint64(q.h), entries, argBytes)
	return QueueInfo{Handle: q.h, Entries: entries, ArgBytes: argBytes}, nil
}

// newQueue is a queue that has nothing yet.
func newQueue(s *Session, entries, argBytes uint32) *queue {
	q := &queue{
		session: s, argBytes: argBytes,
		wake: make(chan struct{}, 1), cancels: make(chan chan struct{}, 1), done: make(chan struct{}),
		jobs: make([]*job, entries), group: outcome.Success,
		arm: make(chan context.Context), rang: make(chan error, 1),
	}
	q.waiter.wake = q.wake
	q.slumber.Store(newSlumber())
	return q
}

// QueueFDs returns the descriptors that the client of a queue gets, which the
// caller owns. It succeeds once: see ring.Server.HandOut.
func (s *Session) QueueFDs(h Handle) (ring, sq, cq int, err error) {
	if err := s.enter(); err != nil {
		return -1, -1, -1, err
	}
	defer s.node.Leave()
	q, err := lookup[queue](s.handles, h)
	if err != nil {
		return -1, -1, -1, err
	}
	if ring, sq, cq, err = q.ring.HandOut(); err == nil {
		q.charges[3].Release()
	}
	return ring, sq, cq, err
}

// open charges the queue, makes its ring and starts it.
func (q *queue) open(entries uint32) error {
	s := q.session
	ctx, stop := context.WithTimeout(context.Background(), reclaimPatience) // for all of them
	defer stop()
	var err error
	for i, charge := range [len(q.charges)]struct {
		class ledger.Class
		n     uint64
	}{
		{ledger.QueueSlots, uint64(max(entries, minQueueCharge))},
		{ledger.HostMemory, q.hostBytes(entries)},
		{ledger.Descriptors, queueDescriptors},
		{ledger.Descriptors, newQueueDescriptors},
	} {
		if q.charges[i], err = s.reserve(ctx, charge.class, charge.n); err != nil {
			q.release()
			return err
		}
	}
	if q.ring, err = s.dev.newRing(ring.Config{Entries: entries, ArgBytes: q.argBytes}); err != nil {
		q.release()
		return err
	}
	for i := range q.charges {
		q.charges[i].Commit()
	}
	q.lease, q.meter = s.account.Lease(ledger.InFlight), s.account.Meter(ledger.DeviceTime)
	q.batch = ring.NewBatch(q.batchArgs())
	q.session.spoils.join(q)
	// The goroutine waits for the handle: nobody can use the queue before.
	start := make(chan struct{})
	q.node, err = s.node.NewChild("queue", revoke.Ops{Urgent: true, Quiesce: func() { <-q.done }, Release: q.release})
	if err != nil {
		q.ring.Close(gpuerr.CodeOf(err))
		q.release()
		return s.closedError(err)
	}
	go func() {
		<-start
		q.runQueue()
	}()
	err = s.handles.add(q, func(h Handle) { q.h = h })
	close(start)
	if err != nil {
		q.node.CloseAsync(err) // not Close: we are inside the session
	}
	return err
}

// hostBytes is what a queue takes of the host's memory: the ring
// (docs/wire.md), and here a batch and completions.
func (q *queue) hostBytes(entries uint32) uint64 {
	shared, _ := roundUp(ring.Config{Entries: entries, ArgBytes: q.argBytes}.Bytes())
	own, _ := roundUp(ring.HostBytes(q.batchArgs()) + toldAtOnce*uint64(reflect.TypeFor[ring.Completion]().Size()))
	return shared + own
}

// batchArgs is the most bytes of arguments that one entry may have, and at least what a batch
// has room for: queues of usual sizes have the same.
func (q *queue) batchArgs() uint32 {
	lim := &q.session.dev.engine.limits
	return max(ring.BatchArgBytes, min(q.argBytes, max(lim.MaxBindings*ring.BindingBytes+lim.MaxInlineBytes, ring.MaxPatches*ring.PatchBytes)))
}

func (q *queue) release() {
	if q.lease != nil {
		q.lease.Close()
		q.meter.Close()
	}
	for i := range q.charges {
		q.charges[i].Release()
	}
}

// CancelQueue ends everything published so far as cancelled, and returns when
// nothing of it runs. What is in the device is stopped there. Entries for which the
// client has left no room for completions end so, too, once there is room.
func (s *Session) CancelQueue(h Handle) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.node.Leave()
	q, err := lookup[queue](s.handles, h)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	select {
	case q.cancels <- ended:
		q.rouse()
	case <-q.done:
		return nil
	}
	select {
	case <-ended:
	case <-q.done:
	}
	return nil
}

// CloseQueue ends a queue: what is in it ends revoked.
func (s *Session) CloseQueue(h Handle) error {
	q, err := remove[queue](s, h)
	if err != nil {
		return err
	}
	if err := q.node.Close(errDestroyed); err != nil {
		return err
	}
	s.audit("queue.close", "queue=%#x", uint64(h))
	return nil
}

// kick wakes runQueue if it sleeps. The caller has published what there is to see;
// runQueue says that it sleeps, then looks again.
func (q *queue) kick() {
	if q.sleeping.Load() {
		nudge(q.wake)
	}
}

// runQueue serves the ring until the queue is closed.
func (q *queue) runQueue() {
	defer close(q.done)
	bell := make(chan struct{})
	go func() {
		defer close(bell)
		q.runDoorbell()
	}()
	code := q.serveToTheEnd()
	q.slumber.Load().end()
	close(q.arm)
	<-bell
	q.session.spoils.leave(q)
	q.ring.Close(code)
}

// serveToTheEnd serves and drains. A bug on the way ends this queue and what it
// has, as failed, and no other. Within the engine it is not caught: nobody could
// say what the device is doing, and the driver is better replaced.
func (q *queue) serveToTheEnd() (code gpuerr.Code) {
	defer func() {
		if p := recover(); p != nil {
			if q.inEngine {
				panic(p)
			}
			q.session.dev.log.Error("a queue ends because of a bug", "session", q.session.id, "panic", p, "stack", string(debug.Stack()))
			q.abandon()
			code = gpuerr.Internal
		}
	}()
	code, how, whole := q.serve()
	q.drain(how, whole)
	return code
}

// abandon ends every job, whatever state it was left in, and completes none.
func (q *queue) abandon() {
	q.session.dev.engine.cancel(q.session, func(j *job) bool { return j.queue == q }, errorOutcome)
	q.told = nil
	q.sleeping.Swap(true)
	for _, j := range q.jobs {
		if j == nil {
			continue
		}
		for s := j.state.Load(); s == jobReady || s == jobSent; s = j.state.Load() {
			<-q.wake
		}
		if j.state.Load() == jobHeld {
			j.unpin()
		}
		if j.fence != nil {
			j.fence.forget(&q.waiter)
			if j.op == ring.OpSignal {
				j.fence.end(j.value, errorOutcome)
			}
			j.fence = nil
		}
		j.discharge()
	}
	q.waiting = nil
}

// serve works until there is a reason to end: the code for the client, the
// outcome of what is left, and whether that includes what was not taken yet.
func (q *queue) serve() (code gpuerr.Code, how outcome.Outcome, whole bool) {
	gone, lost := q.node.Done(), q.session.dev.lost
	idle := 0
	for {
		q.passSpoils()
		switch {
		case isClosed(lost):
			return gpuerr.DeviceLost, lostOutcome, true
		case isClosed(gone):
			if isClosed(lost) {
				return gpuerr.DeviceLost, lostOutcome, true
			}
			return gpuerr.CodeOf(q.node.Err()), revokedOutcome, true
		case len(q.cancels) > 0:
			q.cancelled(<-q.cancels)
		}
		if f := q.session.dev.freezing.Load(); f != nil {
			q.park(f)
			continue
		}
		worked := q.retire()
		took, err := q.take()
		q.flush()
		switch {
		case err != nil:
		case worked || took:
			idle = 0
		case q.poll(idle):
			idle++
		default:
			err = q.rest(gone, lost)
		}
		if err != nil {
			return gpuerr.Protocol, protocolOutcome, false
		}
	}
}

// poll looks for work for a while before the queue sleeps, and reports whether serve is to
// look: the client then makes no system call, and no goroutine has to be woken. Others run
// in between. looks is how often serve has looked in vain.
func (q *queue) poll(looks int) (again bool) {
	if q.head != q.tail || !q.mayFetch() {
		runtime.Gosched()
		return looks < pollsForDevice
	}
	if looks > 0 { // an entry without room for its completion looks like work
		return false
	}
	e := q.session.dev.engine
	defer e.pollers.Add(-1)
	if e.pollers.Add(1) > e.maxPollers {
		return false
	}
	for range pollsOfRing {
		runtime.Gosched()
		if q.ring.Ready() || q.called() {
			return true
		}
	}
	return false
}

// called reports whether somebody wants something of the queue: neither its client, by the
// ring, nor the device.
func (q *queue) called() bool {
	return len(q.cancels) > 0 || q.owes.Load() || q.session.dev.freezing.Load() != nil ||
		isClosed(q.node.Done()) || isClosed(q.session.dev.lost)
}

// cancelled does what a call of CancelQueue asks for.
func (q *queue) cancelled(ended chan struct{}) {
	q.drain(cancelledOutcome, true)
	close(ended)
}

var (
	cancelledOutcome = outcome.Outcome{Kind: outcome.Cancelled}
	protocolOutcome  = outcome.Outcome{Kind: outcome.Revoked, Cause: outcome.Protocol}
	dependentOutcome = outcome.Outcome{Kind: outcome.Cancelled, Cause: outcome.Dependency}
)

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
