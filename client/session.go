package client

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"capgpu/control"
	"capgpu/gpuerr"
	"capgpu/ledger"
)

// Session is the capability to use one device. It ends when it is closed, when
// an ancestor session ends, when the service revokes it, or with its driver.
type Session struct {
	caller *control.Caller
	epoch  uint64
	waits  chan struct{} // places for fence waits; see maxWaits

	done    chan struct{} // closed once cause is set
	cause   atomic.Pointer[gpuerr.Error]
	watched chan struct{} // closed when runWatch has returned

	poisoned atomic.Pointer[gpuerr.Error] // by a trap that is known here
	above    *Session                     // ends with this one; nil: none does

	creating sync.WaitGroup // creations that may outlive their caller
	// ctx ends with the session; queues wait with it.
	ctx    context.Context
	cancel context.CancelFunc

	mu sync.Mutex
	// +checklocks:mu
	objects map[object]struct{}
	// +checklocks:mu
	queues []*Queue // of objects
	// +checklocks:mu
	closing chan struct{} // made by the first Close, closed when that is done
}

// object is what a session ends: release frees what this process holds of it.
type object interface{ release() }

// NewSession speaks on a control socket of a driver of the given epoch; it takes
// ownership of fd, also when it fails.
func NewSession(fd int, epoch uint64) (*Session, error) {
	conn, err := control.NewConn(fd, control.ConnOptions{Descriptors: true})
	if err != nil {
		return nil, err
	}
	s := &Session{
		caller:  control.NewCaller(conn),
		epoch:   epoch,
		waits:   make(chan struct{}, maxWaits),
		done:    make(chan struct{}),
		watched: make(chan struct{}),
		objects: map[object]struct{}{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	go s.runWatch()
	return s, nil
}

// runWatch ends the session when the driver says so, or its socket does.
func (s *Session) runWatch() {
	defer close(s.watched)
	_, err := s.caller.Call(context.Background(), control.TypeAwaitEnd, nil, nil)
	if err == nil || errors.Is(err, gpuerr.Unimplemented) {
		// Our own Close is under way, or a driver that cannot tell.
		<-s.caller.Done()
		err = s.caller.Err()
	}
	if errors.Is(err, gpuerr.Disconnected) {
		err = errDriverGone
	}
	s.mu.Lock()
	if s.closing != nil {
		err = errSessionClosed
	}
	s.mu.Unlock()
	s.cause.Store(gpuerr.From(err))
	close(s.done)
	s.cancel()
	s.caller.Close()
}

var (
	errSessionClosed = gpuerr.New(gpuerr.Closed, "the session is closed")
	errDriverGone    = gpuerr.New(gpuerr.Disconnected, "the driver is gone; open the device again")
)

// Epoch is the driver's epoch, for Conn.NextState.
func (s *Session) Epoch() uint64 { return s.epoch }

// Done is closed when the session is over.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err says why Done is closed; nil before.
func (s *Session) Err() error {
	if cause := s.cause.Load(); cause != nil {
		return cause
	}
	return nil
}

// gone is the error of an object that was closed: the session's, if that is over.
func (s *Session) gone(what string) error {
	if err := s.Err(); err != nil {
		return err
	}
	return gpuerr.New(gpuerr.Closed, "%s", what)
}

// askTime is how long a driver may take to say whether a session is over.
const askTime = 5 * time.Second

// kept says why the memory of the session may have been scrubbed already, nil where it
// was not. A session that never had a queue hears of its end in its own time: nothing but
// its own process wrote that memory.
func (s *Session) kept() error {
	s.mu.Lock()
	had, q := s.queues != nil, (*Queue)(nil)
	if n := len(s.queues); n > 0 {
		q = s.queues[n-1]
	}
	s.mu.Unlock()
	if err := s.Err(); err != nil { // not before: a Close that took the queues away has set it
		return err
	}
	if !had || q != nil && q.ring.Err() == nil {
		return nil
	}
	// The queue may be all that has ended. A session that has is not described.
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	_, err := s.Describe(ctx)
	if errors.Is(err, gpuerr.Disconnected) {
		select {
		case <-s.done: // follows at once, and knows why
			return s.Err()
		case <-ctx.Done():
		}
	}
	return err
}

// call asks the driver. Once the session is over, every error is the reason.
func (s *Session) call(ctx context.Context, t control.MsgType, body []byte) (*control.Message, error) {
	return s.ask(ctx, t, body, nil)
}

func (s *Session) ask(ctx context.Context, t control.MsgType, body []byte, fds []int) (*control.Message, error) {
	if err := s.Err(); err != nil {
		return nil, err
	}
	m, err := s.caller.Call(ctx, t, body, fds)
	if err == nil {
		return m, nil
	}
	select {
	case <-s.caller.Done():
		<-s.done // follows at once
	default:
	}
	if over := s.Err(); over != nil {
		return nil, over
	}
	return nil, err
}

// create asks the driver for an object. If ctx ends first, what is made
// nevertheless is destroyed again by a message of type undo.
func (s *Session) create(ctx context.Context, t, undo control.MsgType, body []byte) (*control.Message, error) {
	if ctx.Done() == nil {
		return s.call(ctx, t, body)
	}
	return s.createOf(ctx, undo, func(ctx context.Context) (*control.Message, error) { return s.call(ctx, t, body) })
}

// createOf is create of what ask does, which may run on after the return.
func (s *Session) createOf(ctx context.Context, undo control.MsgType, ask func(context.Context) (*control.Message, error)) (*control.Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !s.beginCreating() {
		return nil, s.gone("the session is closed")
	}
	type answer struct {
		m   *control.Message
		err error
	}
	answers, taken := make(chan answer), make(chan struct{})
	go func() {
		defer s.creating.Done()
		m, err := ask(s.ctx)
		select {
		case answers <- answer{m, err}:
		case <-taken:
			if err == nil {
				m.CloseFDs()
				s.undo(undo, m.Body)
			}
		}
	}()
	select {
	case a := <-answers:
		return a.m, a.err
	case <-ctx.Done():
		close(taken)
		return nil, ctx.Err()
	}
}

// beginCreating counts a creation that Close waits for.
func (s *Session) beginCreating() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing != nil {
		return false
	}
	s.creating.Add(1)
	return true
}

// undo destroys what nobody waits for any more. Every reply to a creation starts
// with the handle, but that to Restrict: the new session ends with its socket.
func (s *Session) undo(t control.MsgType, body []byte) {
	if t == 0 || len(body) < 8 {
		return
	}
	_ = s.destroy(s.ctx, t, binary.LittleEndian.Uint64(body)) // else it goes with the session
}

// adopt registers an object with the session, or refuses it when the session is
// already closed by this process and nobody would release the object.
func (s *Session) adopt(o object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing != nil {
		return s.gone("the session is closed")
	}
	s.objects[o] = struct{}{}
	if q, ok := o.(*Queue); ok {
		s.queues = append(s.queues, q)
	}
	return nil
}

// disown reports whether the object was open until now.
func (s *Session) disown(o object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, open := s.objects[o]
	delete(s.objects, o)
	if q, ok := o.(*Queue); ok && open {
		i := slices.Index(s.queues, q)
		s.queues = slices.Delete(s.queues, i, i+1)
	}
	return open
}

// destroy asks the driver to close an object. That it is gone already is success.
func (s *Session) destroy(ctx context.Context, t control.MsgType, handle uint64) error {
	_, err := s.call(ctx, t, control.HandleBody{Handle: handle}.AppendTo(nil))
	if err != nil && gpuerr.CodeOf(err).Class() == gpuerr.ClassDisconnected {
		return nil
	}
	return err
}

// Describe tells what the session may do, and the bounds of the device.
func (s *Session) Describe(ctx context.Context) (Description, error) {
	m, err := s.call(ctx, control.TypeDescribe, nil)
	if err != nil {
		return Description{}, err
	}
	d, err := control.ParseDescription(m.Body)
	if err != nil {
		return Description{}, err
	}
	return description(d), nil
}

// Budget tells what the session uses of its limits.
func (s *Session) Budget(ctx context.Context) ([]BudgetEntry, error) {
	m, err := s.call(ctx, control.TypeBudget, nil)
	if err != nil {
		return nil, err
	}
	r, err := control.ParseBudgetReply(m.Body)
	if err != nil {
		return nil, err
	}
	out := make([]BudgetEntry, len(r.Entries))
	for i, e := range r.Entries {
		out[i] = BudgetEntry{Resource: ledger.Class(e.Class).String(), Used: e.Used, Limit: e.Limit, Peak: e.Peak}
	}
	return out, nil
}

// Restrict makes a weaker session. Its charges count against this one as well.
// It ends with this one, but not the other way round, and it lives on its own
// socket: closing this session's Go object ends both.
func (s *Session) Restrict(ctx context.Context, p Policy) (*Session, error) {
	req := control.RestrictRequest{Facet: uint32(p.Facet), MaxDeadlineNanos: uint64(max(0, p.MaxDeadline)), Check: p.Check, Programs: p.Programs}
	for name, amount := range p.Limits {
		class, ok := ledger.ParseClass(name)
		if !ok {
			return nil, gpuerr.New(gpuerr.Invalid, "limits: there is no resource %q", name)
		}
		req.Limits = append(req.Limits, control.Limit{Class: uint32(class), Amount: amount})
	}
	slices.SortFunc(req.Limits, func(a, b control.Limit) int { return int(a.Class) - int(b.Class) })
	m, err := s.create(ctx, control.TypeRestrict, 0, req.AppendTo(nil))
	if err != nil {
		return nil, err
	}
	fd := m.FDs[0]
	m.FDs = nil
	return NewSession(fd, s.epoch)
}

// Close revokes the session and all below it. It returns when nothing of it is
// accepted any more and no work of it runs or will; if ctx ends before that, the
// driver finishes alone. Its memory is scrubbed and its charges are given back soon
// after: a request that is refused only for that waits for it. In either case nothing
// of the session is left in this process but slices that Buffer.Map returned.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	if closing := s.closing; closing != nil {
		s.mu.Unlock()
		select {
		case <-closing:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	closing := make(chan struct{})
	s.closing = closing
	s.mu.Unlock()
	defer close(closing)

	_, err := s.caller.Call(ctx, control.TypeClose, nil, nil)
	if s.Err() != nil || gpuerr.CodeOf(err).Class() == gpuerr.ClassDisconnected {
		err = nil // over already
	}
	s.caller.Close()
	<-s.watched
	s.creating.Wait()
	s.mu.Lock()
	objects := s.objects
	s.objects, s.queues = map[object]struct{}{}, nil
	s.mu.Unlock()
	for o := range objects {
		o.release()
	}
	if s.above != nil {
		err = errors.Join(err, s.above.Close(ctx))
	}
	return err
}

// nanos reads a duration of the wire; what does not fit is as good as for ever.
func nanos(n uint64) time.Duration { return time.Duration(min(n, math.MaxInt64)) }
