package gpu

import (
	"context"
	"math/bits"
	"sync/atomic"
	"time"

	"capgpu/gpu/handles"
	"capgpu/gpuerr"
	"capgpu/internal/revoke"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

// queue is a ring and the in-order work in it. The reactor visits it (visit.go): it takes
// entries, retires them in order, and writes the completions, so that a client can hold up
// nobody but itself.
//
//	live ──close, loss, or a broken ring──► draining (all taken entries end) ──► done
type queue struct {
	session *Session
	node    *revoke.Node
	ring    serverRing
	h       Handle

	argBytes uint32
	mostArgs uint32            // of one entry
	lease    *ledger.Lease     // in flight
	meter    *ledger.Meter     // device time
	charges  [4]ledger.Receipt // slots, memory, descriptors, and those until its client has it
	done     chan struct{}     // closed when nothing of it runs or will, and its ring is closed
	isDue    atomic.Bool       // it is on its way to the reactor, by the mailbox

	// The reactor's, as all below.
	poll   polled
	jobs   []*job // by position, made when first used
	head   uint64 // positions: retired until,
	tail   uint64 // and begun until
	intake intake
	outlet outlet
	queueEnd

	ready  jobList // for the device (fair.go)
	circle circle
}

// intake is what a queue has taken and not begun, and what stands in the way of that.
type intake struct {
	batch    *ring.Batch // nil: it has none
	begun    int         // entries of the batch that are dealt with
	taken    uint64      // position in the ring behind the batch
	discard  int         // entries published before the last cancel and not begun yet
	waiting  *job        // the wait that holds the queue
	waiter   waiter
	skipping bool     // a wait failed: work until the next signal is cancelled
	failed   int      // jobs that failed and are not retired (failure.go)
	doomed   uint64   // work before this position of the ring depends on failed work
	lengths  []uint64 // of the bindings of the launch that is resolved
}

// outlet is what a queue has to tell its client.
type outlet struct {
	told     []ring.Completion // not published
	group    outcome.Outcome   // the worst of the work since the last signal
	failed   int               // of told: how many are of work that failed,
	first    uint64            // and the position of the first of them
	mustLook bool              // it is among those that the reactor retires (look)
}

// polled is how the reactor learns that the client has published something.
type polled struct {
	active bool      // the reactor looks at the ring in each round; else its client wakes it
	worked time.Time // when there was something last
	held   bool      // it is not looked at, nor armed: what it has must end first
	deaf   bool      // the client has closed its end: nothing wakes the reactor any more
	index  int       // in reactor.active
	tag    uint32    // the poller's
}

// queueEnd is how far a queue is from its end.
type queueEnd struct {
	drain  *drain // nil: it is not draining
	broken bool   // a bug has shown in it
	over   bool   // nothing of it is left
	joined bool   // of a restored queue: the reactor has it
}

// drain is the end of what a queue had at a moment.
type drain struct {
	how     outcome.Outcome
	last    bool              // the queue ends with it,
	code    gpuerr.Code       // and its client is told this
	waiters []chan<- struct{} // of CancelQueue
}

// serverRing is the driver's end of a ring: *ring.Server, or a model of it in tests
// on virtual time.
type serverRing interface {
	HandOut() (ring, sq, cq int, err error)
	TakeMany(b *ring.Batch, most int) (int, error)
	Ready() bool
	Published() int
	Marks() (taken, published, collected uint64)
	Publish(cs []ring.Completion)
	Arm() (ready bool, err error)
	Doorbell() int
	OnDoorbell(f func())
	Drain() error
	Close(code gpuerr.Code)
}

// ringsOf is how a Device makes rings.
func ringsOf(c *Config) func(ring.Config) (serverRing, error) {
	if c.newRing != nil {
		return c.newRing
	}
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
	// besides its entries (descriptors, a mapping) is the same for all.
	minQueueCharge = 64
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
	q := &queue{session: s, argBytes: argBytes, done: make(chan struct{}), jobs: make([]*job, entries)}
	q.mostArgs = q.batchArgs()
	q.outlet.group = outcome.Success
	q.intake.waiter.notify = func() { s.dev.reactor.mail.due(q) }
	return q
}

// QueueFDs returns the descriptors that the client of a queue gets, which the
// caller owns. It succeeds once: see ring.Server.HandOut.
func (s *Session) QueueFDs(h Handle) (ring, sq, cq int, err error) {
	if err := s.enter(); err != nil {
		return -1, -1, -1, err
	}
	defer s.node.Leave()
	q, err := handles.Lookup[queue](s.handles, h)
	if err != nil {
		return -1, -1, -1, err
	}
	if ring, sq, cq, err = q.ring.HandOut(); err == nil {
		q.charges[3].Release()
	}
	return ring, sq, cq, err
}

// open charges the queue, makes its ring and has the reactor serve it.
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
	r := s.dev.reactor
	if r.mail.call(func() { err = r.join(q) }); err != nil {
		q.ring.Close(gpuerr.CodeOf(err))
		q.release()
		return err
	}
	if q.node, err = s.node.NewChild("queue", revoke.Ops{Urgent: true, Quiesce: q.quiesce, Release: q.release}); err != nil {
		q.end(gpuerr.CodeOf(err))
		q.release()
		return s.closedError(err)
	}
	if err = s.handles.Add(q, func(h Handle) { q.h = h }); err != nil {
		q.node.CloseAsync(err) // not Close: we are inside the session
		return err
	}
	return nil
}

// hostBytes is what a queue takes of the host's memory: the ring
// (docs/wire.md), and here a batch, its jobs and its completions.
func (q *queue) hostBytes(entries uint32) uint64 {
	shared, _ := roundUp(ring.Config{Entries: entries, ArgBytes: q.argBytes}.Bytes())
	own, _ := roundUp(ring.HostBytes(q.mostArgs) + mostTold*completionBytes)
	return shared + own
}

// batchArgs is room for the most bytes of arguments that one entry may have. There are few
// such sizes, so that queues use the same batches.
func (q *queue) batchArgs() uint32 {
	lim := &q.session.dev.reactor.limits
	most := min(q.argBytes, max(lim.MaxBindings*ring.BindingBytes+lim.MaxInlineBytes, ring.MaxPatches*ring.PatchBytes))
	return max(ring.BatchArgBytes, uint32(1)<<bits.Len32(max(most, 1)-1))
}

// quiesce returns when nothing of the queue runs or will.
func (q *queue) quiesce() {
	code := gpuerr.DeviceLost
	if q.session.dev.Err() == nil {
		code = gpuerr.CodeOf(q.node.Err())
	}
	q.end(code)
}

// end has the reactor drain the queue and waits for that.
func (q *queue) end(code gpuerr.Code) {
	r := q.session.dev.reactor
	r.mail.post(func() {
		how := revokedOutcome
		if code == gpuerr.DeviceLost {
			how = lostOutcome
		}
		q.beginDrain(drain{how: how, last: true, code: code}, true)
	})
	<-q.done
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
// nothing of it runs. Jobs in the device are stopped there. Entries for which the client
// has left no room for completions end so, too, once there is room.
func (s *Session) CancelQueue(h Handle) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.node.Leave()
	q, err := handles.Lookup[queue](s.handles, h)
	if err != nil {
		return err
	}
	over := make(chan struct{})
	s.dev.reactor.mail.post(func() {
		q.beginDrain(drain{how: cancelledOutcome, waiters: []chan<- struct{}{over}}, true)
	})
	select {
	case <-over:
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
