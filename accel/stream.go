package accel

import (
	"context"
	"errors"
	"sync/atomic"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// Stream is an in-order queue of work. One goroutine uses it at a time: a call that comes meanwhile
// is refused with EnqueueFailed. S is a label, for the trace and the compiler.
type Stream[S Space] struct{ s *stream }

// stream is a Stream without its type.
type stream struct {
	g     *GPU
	id    uint32
	slot  int // in clocks
	queue *client.Queue
	fence *client.Fence // its points are those of the stream

	busy       atomic.Bool   // a goroutine uses the stream
	collecting chan struct{} // full while a goroutine takes completions
	batch      [32]client.Completion

	// g.mu guards what follows.
	point   uint64 // the last that was promised
	ended   uint64 // the last that has ended
	known   clock  // what later work comes after, beside the stream's own
	last    *mark
	loose   bool      // known has grown since last
	pending []pending // commands under way: their completions have not been taken; in order
	untold  []*mark   // failed, and no wait has told yet
	closed  bool
	opening bool

	// The goroutine that holds busy fills these.
	launch   client.Launch
	copy     client.Copy
	uses     []use
	waits    []client.WaitOrder
	signal   client.Signal
	commands []client.Command
}

// pending is a command under way.
type pending struct {
	kind byte // 'w' a wait, 'o' the work, 's' the signal behind it
	mark *mark
}

// queueEntries is the size of a stream's queue: a piece of work needs at most one entry for each
// other stream, and two.
const queueEntries = 256

// NewStream makes a stream, of at most 63 besides the default one.
func NewStream[S Space](ctx context.Context, g *GPU) (*Stream[S], error) {
	if err := g.check("NewStream"); err != nil {
		return nil, err
	}
	s, err := g.newStream(ctx, spaceName[S]())
	if err != nil {
		return nil, g.wrap(ctx, EnqueueFailed, "NewStream", err)
	}
	return &Stream[S]{s}, nil
}

func (g *GPU) newStream(ctx context.Context, space string) (*stream, error) {
	s := &stream{g: g, collecting: make(chan struct{}, 1)}
	if err := g.place(s); err != nil {
		return nil, err
	}

	var err error
	if s.fence == nil {
		s.fence, err = g.session.CreateFence(ctx, 0)
	}
	if err == nil {
		s.queue, err = g.session.CreateQueue(ctx, client.QueueOptions{Entries: queueEntries})
	}

	g.mu.Lock()
	defer g.mu.Unlock()
	s.opening = false
	if err != nil {
		return nil, err
	}
	if s.slot > 0 {
		g.lastStream++
		s.id = g.lastStream
	}
	s.closed = false
	g.options.Trace.stream(s.id, g.options.Index, space)
	return s, nil
}

// place finds a slot that was never used, or one that a stream has left. Its fence stays, because a
// wait for it may be on its way to the device, and its points go on.
func (g *GPU) place(s *stream) error {
	s.closed, s.opening = true, true
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, old := range g.streams {
		if i > 0 && old.closed && !old.opening && old.ended == old.point {
			s.slot, s.fence, s.point, s.ended = i, old.fence, old.point, old.point
			g.streams[i] = s
			return nil
		}
	}
	if len(g.streams) == maxStreams {
		return gpuerr.New(gpuerr.Quota, "a GPU has at most %d streams: close one", maxStreams)
	}
	s.slot = len(g.streams)
	g.streams = append(g.streams, s)
	return nil
}

// ID is 0 for the default stream; others count from 1.
func (s *Stream[S]) ID() uint32 { return s.s.id }

// Launch queues a kernel and returns its event. The launch is checked first: LaunchLimits says what
// was asked and what is available, EnqueueFailed which argument does not fit. It waits only while
// the stream is full.
func (s *Stream[S]) Launch(l Launch) (Event[S], error) {
	r := request{traced: traced{Op: opKernel}, op: "Launch"}
	if l.Kernel != nil {
		r.op += " " + l.Kernel.info.Name
		r.traced.Kernel = l.Kernel.info.Name
	}
	m, err := s.s.use(&r, func() error {
		r.work = &s.s.launch
		return s.s.prepare(r.op, &l)
	})
	return Event[S]{m}, err
}

// Copy queues a copy of src to dst, which are of one length.
func Copy[T any, D, F Async, S Space](s *Stream[S], dst *Buffer[T, D], src *Buffer[T, F]) (Event[S], error) {
	if dst == nil || src == nil {
		return enqueueCopy(s, nil, nil, 0)
	}
	bytes := src.memory.bytes()
	if dst.memory.n != src.memory.n {
		bytes = 0
	}
	return enqueueCopy(s, dst.memory, src.memory, bytes)
}

func enqueueCopy[S Space](s *Stream[S], to, from *memory, bytes uint64) (Event[S], error) {
	r := request{traced: traced{Op: opCopy, Bytes: bytes}, op: "Copy"}
	m, err := s.s.use(&r, func() error {
		if to == nil || from == nil || to.g != s.s.g || from.g != s.s.g {
			return refuse(EnqueueFailed, r.op, "a buffer is missing, or of another GPU")
		}
		if to == from || bytes == 0 || bytes > min(to.bytes(), from.bytes()) {
			return refuse(EnqueueFailed, r.op, "%d bytes to %d; a copy is between two buffers of one length", from.bytes(), to.bytes())
		}
		s.s.copy = client.Copy{Dst: to.shared, Src: from.shared, Bytes: bytes}
		r.work, s.s.uses = &s.s.copy, append(s.s.uses[:0], use{to, true}, use{from, false})
		return nil
	})
	return Event[S]{m}, err
}

// Record puts an event behind all that the stream was given.
func (s *Stream[S]) Record() (Event[S], error) {
	m, err := s.s.use(&request{traced: traced{Op: opRecord}, op: "Record"}, nil)
	return Event[S]{m}, err
}

// Wait has what the stream is given later begin after the event. It does not block the caller.
func (s *Stream[S]) Wait(e AnyEvent) error {
	r := request{traced: traced{Op: opWait}, op: "Wait", waitOnly: true}
	m := markOf(e)
	if m != nil {
		r.traced.Event = m.id
	}
	_, err := s.s.use(&r, func() error {
		r.after = m
		return s.s.g.valid(r.op, m)
	})
	return err
}

// Synchronize waits until all that the stream was given has ended, gives back what that has
// borrowed, and says how it ended.
func (s *Stream[S]) Synchronize(ctx context.Context) error {
	const op = "Synchronize"
	st := s.s
	st.g.mu.Lock()
	m, loose, closed, event := st.last, st.loose, st.closed, uint32(0)
	if m != nil {
		event = m.id
	}
	st.g.mu.Unlock()

	var err error
	switch {
	case closed:
		err = refuse(InvalidStream, op, "stream %d is closed", st.id)
	case loose: // an event of its own covers the waits
		if m, err = st.use(&request{op: op, silent: true}, nil); err == nil {
			err = st.g.await(ctx, op, m, false)
		}
	case m != nil:
		err = st.g.await(ctx, op, m, false)
	default:
		return st.g.check(op)
	}
	st.g.options.Trace.wait(st, event, err)
	return err
}

// Close waits for the work of the stream, and ends it. When ctx ends first, the work ends as
// revoked. The default stream ends with its GPU.
func (s *Stream[S]) Close(ctx context.Context) error {
	const op = "Close"
	st := s.s
	if st.slot == 0 {
		return refuse(InvalidStream, op, "the default stream ends with its GPU")
	}
	if !st.busy.CompareAndSwap(false, true) {
		return st.errBusy(op)
	}
	defer st.busy.Store(false)

	st.g.mu.Lock()
	m, closed, over := st.last, st.closed, st.g.closed
	st.closed = true
	st.g.mu.Unlock()
	if closed || over {
		return nil
	}

	var err error
	if m != nil {
		err = st.g.await(ctx, op, m, false)
	}
	if failed := st.queue.Close(context.WithoutCancel(ctx)); failed != nil {
		return errors.Join(err, wrap(DeviceUnavailable, op, failed))
	}
	st.abandon()
	return err
}

// abandon notes that the work under way ended with its queue.
func (s *stream) abandon() {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	for _, p := range s.pending {
		if p.kind == 's' {
			p.mark.done, p.mark.err = true, ended(p.mark.op, outcome.Outcome{Kind: outcome.Revoked, Cause: outcome.Closed})
		}
	}
	s.pending, s.ended = nil, s.point
	s.g.host = s.g.host.with(s.slot, s.point)
}

func (s *stream) errBusy(op string) error {
	return refuse(EnqueueFailed, op, "another goroutine is using stream %d", s.id)
}
