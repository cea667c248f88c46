package client

import (
	"context"
	"sync"

	"capgpu/control"
	"capgpu/gpuerr"
	"capgpu/ring"
)

// Queue is an in-order command queue on a ring shared with the driver. Queues of
// one session run beside each other.
//
// Every command that was flushed is completed once, in order. A queue has room
// for a bounded number of completions: a program that does not collect them
// stops its own queue. The fast way is to push many, flush once, and collect
// many; Submit does the first two.
type Queue struct {
	s      *Session
	handle uint64
	ring   *ring.Client

	// submit and collect are held by the one who is in the ring on that side;
	// Close takes both before it unmaps the ring.
	submit sync.Mutex
	// +checklocks:submit
	next uint64 // ticket of the next command
	// +checklocks:submit
	entry ring.Entry
	// +checklocks:submit
	bindings []ring.Binding

	collect sync.Mutex
	// +checklocks:collect
	taken [64]ring.Completion

	// ctx ends with the queue, and wakes the collector.
	ctx    context.Context
	cancel context.CancelFunc
}

// The defaults of QueueOptions.
const (
	DefaultQueueEntries = 256
	DefaultArgBytes     = 64 << 10
)

// CreateQueue makes a queue.
func (s *Session) CreateQueue(ctx context.Context, o QueueOptions) (*Queue, error) {
	if o.Entries == 0 {
		o.Entries = DefaultQueueEntries
	}
	if o.ArgBytes == 0 {
		o.ArgBytes = DefaultArgBytes
	}
	m, err := s.create(ctx, control.TypeCreateQueue, control.TypeCloseQueue, control.CreateQueueRequest{Entries: o.Entries, ArgBytes: o.ArgBytes}.AppendTo(nil))
	if err != nil {
		return nil, err
	}
	r, err := control.ParseCreateQueueReply(m.Body)
	if err != nil {
		m.CloseFDs()
		return nil, err
	}
	shared, err := ring.Attach(m.FDs[0], m.FDs[1], m.FDs[2])
	m.FDs = nil
	if err != nil {
		return nil, err
	}
	q := &Queue{s: s, handle: r.Handle, ring: shared, next: 1}
	q.ctx, q.cancel = context.WithCancel(s.ctx)
	if err := s.adopt(q); err != nil {
		q.release()
		return nil, err
	}
	return q, nil
}

// Handle is the queue's number in the session.
func (q *Queue) Handle() uint64 { return q.handle }

// PushLaunch stages a launch and returns its ticket. Tickets of a queue ascend
// from 1 by one for each command. The driver sees nothing before Flush.
//
// E_QUEUE_FULL means that the ring, or its argument arena, has no room: flush,
// collect completions, then push again.
func (q *Queue) PushLaunch(l *Launch) (uint64, error) {
	q.submit.Lock()
	defer q.submit.Unlock()
	return q.launchLocked(l)
}

// PushCopy stages a copy; see PushLaunch.
func (q *Queue) PushCopy(c *Copy) (uint64, error) {
	q.submit.Lock()
	defer q.submit.Unlock()
	return q.copyLocked(c)
}

// PushFill stages a fill; see PushLaunch.
func (q *Queue) PushFill(f *Fill) (uint64, error) {
	q.submit.Lock()
	defer q.submit.Unlock()
	return q.fillLocked(f)
}

// PushSignal stages a signal: when everything pushed since the previous signal
// has ended, the fence reaches value with the worst outcome of it. See PushLaunch.
func (q *Queue) PushSignal(f *Fence, value uint64) (uint64, error) {
	q.submit.Lock()
	defer q.submit.Unlock()
	return q.signalLocked(f, value)
}

// PushWait stages a wait: what is pushed later starts once the fence has reached
// value. See PushLaunch.
func (q *Queue) PushWait(f *Fence, value uint64) (uint64, error) {
	q.submit.Lock()
	defer q.submit.Unlock()
	return q.waitLocked(f, value)
}

// Submit pushes commands and flushes: all of them, or none with an error. It
// returns the ticket of the first; the others follow by one each.
func (q *Queue) Submit(cmds ...Command) (first uint64, err error) {
	q.submit.Lock()
	defer q.submit.Unlock()
	if err := q.err(); err != nil {
		return 0, err
	}
	first = q.next
	if free := q.ring.Free(); free < len(cmds) {
		return 0, gpuerr.New(gpuerr.QueueFull, "the queue has room for %d more commands, not %d; collect completions first", free, len(cmds))
	}
	for _, cmd := range cmds {
		if _, err := cmd.push(q); err != nil {
			return 0, err
		}
	}
	return first, q.ring.Flush()
}

// err says whether the queue is over.
func (q *Queue) err() error {
	if q.ctx.Err() == nil {
		return nil
	}
	return q.s.gone("the queue is closed")
}

// Flush shows the driver everything that was pushed.
func (q *Queue) Flush() error {
	q.submit.Lock()
	defer q.submit.Unlock()
	if err := q.err(); err != nil {
		return err
	}
	return q.ring.Flush()
}

// Completions takes completions that have come, at least one and at most
// len(out), in order, and returns their number. It waits if there is none: until
// ctx ends, or the queue or its session does. Completions that came before an end
// are still handed out.
func (q *Queue) Completions(ctx context.Context, out []Completion) (int, error) {
	if len(out) == 0 {
		return 0, nil
	}
	q.collect.Lock()
	defer q.collect.Unlock()
	taken := q.taken[:min(len(out), len(q.taken))]
	if q.ring == nil {
		return 0, q.err()
	}
	n, err := q.ring.Poll(taken)
	if n == 0 && err == nil {
		n, err = q.sleepLocked(ctx, taken)
	}
	for i := range n {
		c := &taken[i]
		out[i] = Completion{Ticket: c.UserData, Outcome: c.Outcome, DeviceTime: nanos(c.DeviceNanos)}
		if c.Code != gpuerr.None {
			out[i].Err = &gpuerr.Error{Code: c.Code, Available: c.Available}
		}
	}
	if n > 0 {
		return n, nil
	}
	return 0, err
}

// sleepLocked sleeps until a completion comes. The queue's own end is one of the
// things that end the sleep.
//
// +checklocks:q.collect
func (q *Queue) sleepLocked(ctx context.Context, taken []ring.Completion) (int, error) {
	waiting := q.ctx
	if ctx.Done() != nil {
		merged, cancel := context.WithCancel(ctx)
		defer cancel()
		stop := context.AfterFunc(q.ctx, cancel)
		defer stop()
		waiting = merged
	}
	n, err := q.ring.Wait(waiting, taken)
	switch {
	case n > 0 || err == nil:
		return n, nil
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case q.err() != nil:
		return 0, q.err()
	}
	return 0, err
}

// Cancel ends all queued and running work of the queue as cancelled. Its
// completions still come. The queue can be used on.
func (q *Queue) Cancel(ctx context.Context) error {
	_, err := q.s.call(ctx, control.TypeCancelQueue, control.HandleBody{Handle: q.handle}.AppendTo(nil))
	return err
}

// Close ends the queue; its work ends as revoked. Whoever waits in Completions
// is woken.
func (q *Queue) Close(ctx context.Context) error {
	if !q.s.disown(q) {
		return nil
	}
	err := q.s.destroy(ctx, control.TypeCloseQueue, q.handle)
	q.release()
	return err
}

// release wakes the collector, waits for both sides to leave the ring, and
// unmaps it.
func (q *Queue) release() {
	q.cancel()
	q.submit.Lock()
	defer q.submit.Unlock()
	q.collect.Lock()
	defer q.collect.Unlock()
	if q.ring != nil {
		_ = q.ring.Close() // a failed munmap leaves the mapping, which harms nobody
		q.ring = nil
	}
}
