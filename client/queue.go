package client

import (
	"context"
	"sync"
	"sync/atomic"

	"capgpu/control"
	"capgpu/gpuerr"
	"capgpu/outcome"
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
	closed atomic.Bool // by this process

	submit sync.Mutex // around the submitting side of ring
	ring   *ring.Client
	// +checklocks:submit
	next uint64 // ticket of the next command
	// +checklocks:submit
	entry ring.Entry
	// +checklocks:submit
	patches []ring.Patch

	collect sync.Mutex // held while a collector sleeps
	// +checklocks:collect
	collected uint64 // ticket of the last completion that was handed out
}

// handful is completions that are being handed out. The queues that a program collects from,
// one after the other, all use the same, which stays in a cache.
type handful [64]ring.Completion

var handed = sync.Pool{New: func() any { return new(handful) }}

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
	q := newQueue(s, shared, r.Handle)
	if err := s.adopt(q); err != nil {
		q.release()
		return nil, err
	}
	return q, nil
}

func newQueue(s *Session, shared *ring.Client, handle uint64) *Queue {
	return &Queue{s: s, handle: handle, ring: shared, next: 1}
}

// Handle is the queue's number in the session.
func (q *Queue) Handle() uint64 { return q.handle }

// PushLaunch stages a launch and returns its ticket. Tickets of a queue ascend
// from 1 by one for each command. Flush shows the driver what is staged; it may see
// commands earlier when there are many, so that it works while more are pushed.
//
// E_QUEUE_FULL means that the ring, or its argument arena, has no room: flush,
// collect completions, then push again.
func (q *Queue) PushLaunch(l *Launch) (uint64, error) {
	q.submit.Lock()
	defer q.submit.Unlock()
	ticket, err := q.launchLocked(l)
	q.streamLocked()
	return ticket, err
}

// streamBatch is after how many staged launches the driver is shown them.
const streamBatch = 32

// streamLocked lets the driver begin with what is staged, if that is much. After an error
// every call has it.
//
// +checklocks:q.submit
func (q *Queue) streamLocked() {
	if q.ring.Staged() >= streamBatch {
		_ = q.ring.Flush()
	}
}

// PushLaunches stages launches, as many as there is room for, and returns the ticket of
// the first and their number. The error, if there is one, is that of the next one; see
// PushLaunch.
func (q *Queue) PushLaunches(launches ...*Launch) (first uint64, n int, err error) {
	q.submit.Lock()
	defer q.submit.Unlock()
	first = q.next
	for ; n < len(launches); n++ {
		if _, err := q.launchLocked(launches[n]); err != nil {
			return first, n, err
		}
		q.streamLocked()
	}
	return first, n, nil
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
	return q.waitLocked(f, value, false)
}

// PushWaitOrder stages a wait for the order alone: what is pushed later goes on however
// the point ended. See WaitOrder.
func (q *Queue) PushWaitOrder(f *Fence, value uint64) (uint64, error) {
	q.submit.Lock()
	defer q.submit.Unlock()
	return q.waitLocked(f, value, true)
}

// Submit pushes commands and flushes: all of them, or none with an error. It
// returns the ticket of the first; the others follow by one each.
func (q *Queue) Submit(cmds ...Command) (first uint64, err error) {
	q.submit.Lock()
	defer q.submit.Unlock()
	if err := q.err(); err != nil {
		return 0, err
	}
	first, mark := q.next, q.ring.Mark()
	for _, cmd := range cmds {
		if _, err := cmd.push(q); err != nil {
			q.ring.Rollback(mark)
			q.next = first
			return 0, err
		}
	}
	return first, q.failure(q.ring.Flush())
}

// Err says why the queue takes no more commands, nil while it does.
//
// The memory of a session is scrubbed after that has ended: it reads as zeros then, also
// through a mapping, and also what the commands wrote that had ended ok before. So a program that
// reads results from a mapping asks Err afterwards: what was read before it answered nil
// is what the commands wrote. [Buffer.ReadAt] does that by itself.
func (q *Queue) Err() error {
	if err := q.err(); err != nil {
		return err
	}
	return q.failure(q.ring.Err())
}

// err says whether the queue is over.
func (q *Queue) err() error {
	if q.closed.Load() || q.s.Err() != nil {
		return q.s.gone("the queue is closed")
	}
	return nil
}

// failure is what an error of the ring means here.
func (q *Queue) failure(err error) error {
	if err == nil {
		return nil
	}
	if over := q.err(); over != nil {
		return over
	}
	if gpuerr.CodeOf(err) == gpuerr.Closed {
		// Not by this process, then.
		return gpuerr.New(gpuerr.Revoked, "the queue was ended by the service")
	}
	return err
}

// Flush shows the driver everything that was pushed.
func (q *Queue) Flush() error {
	q.submit.Lock()
	defer q.submit.Unlock()
	if err := q.err(); err != nil {
		return err
	}
	return q.failure(q.ring.Flush())
}

// Completions takes completions that have come, at least one and at most
// len(out), in order, and returns their number. It waits if there is none: until
// ctx ends, or the queue or its session does. Completions that came before the
// service ended the queue are still handed out. A second collector waits for the
// first, whatever its ctx says.
func (q *Queue) Completions(ctx context.Context, out []Completion) (int, error) {
	if len(out) == 0 {
		return 0, nil
	}
	q.collect.Lock()
	defer q.collect.Unlock()
	taken := handed.Get().(*handful)
	defer handed.Put(taken)
	n, err := q.ring.Wait(ctx, taken[:min(len(out), len(taken))])
	if err != nil {
		if ended := ctx.Err(); ended != nil {
			return 0, ended
		}
		return 0, q.failure(err)
	}
	q.handOutLocked(out[:n], taken[:n])
	return n, nil
}

// Poll is Completions that does not wait: it returns 0 where none has come. A goroutine that waits in
// Completions holds it up.
func (q *Queue) Poll(out []Completion) (int, error) {
	if len(out) == 0 {
		return 0, nil
	}
	q.collect.Lock()
	defer q.collect.Unlock()
	taken := handed.Get().(*handful)
	defer handed.Put(taken)
	n, err := q.ring.Poll(taken[:min(len(out), len(taken))])
	if err != nil {
		return 0, q.failure(err)
	}
	q.handOutLocked(out[:n], taken[:n])
	return n, nil
}

// handOutLocked hands out completions. They come in the order of the commands: the tickets
// are counted here, whatever ticket the driver says that it is.
//
// +checklocks:q.collect
func (q *Queue) handOutLocked(out []Completion, taken []ring.Completion) {
	for i := range taken {
		c, o := &taken[i], &out[i]
		q.collected++
		o.Ticket, o.DeviceTime, o.EndedAt = q.collected, nanos(c.DeviceNanos), 0
		if c.UserData&signalMark != 0 {
			o.DeviceTime, o.EndedAt = 0, o.DeviceTime
		}
		if o.Err != nil { // a store of a pointer costs more
			o.Err = nil
		}
		o.Outcome.Kind, o.Outcome.Cause = c.Outcome.Kind, c.Outcome.Cause
		o.Outcome.Trap = outcome.Trap{}
		if c.Outcome.Cause == outcome.TrapCause { // else it is empty, as the ring has checked
			o.Outcome.Trap = c.Outcome.Trap
		}
		if c.Code != gpuerr.None {
			o.Err = refusal(c)
		}
		if c.Outcome.Cause != outcome.NoCause {
			q.s.noticePoison(c.Outcome)
		}
	}
}

// refusal is why an entry was refused. The ring has no room for words.
func refusal(c *ring.Completion) error {
	e := gpuerr.New(c.Code, "the driver refused this command")
	if c.Code == gpuerr.LaunchLimit {
		e.Msg = "P-GPU-5003: the launch has more workgroups, threads, shared memory or arguments than the device takes, or another workgroup than the program"
	}
	e.Available = c.Available
	return e
}

// Wakes is how often the queue has woken the driver so far, which is a system call each,
// and how often Completions slept until the driver woke it. Neither grows while both sides
// are busy.
func (q *Queue) Wakes() (sent, slept uint64) { return q.ring.Wakes() }

// Cancel ends all queued and running work of the queue as cancelled. Its
// completions still come. The queue can be used on.
func (q *Queue) Cancel(ctx context.Context) error {
	_, err := q.s.call(ctx, control.TypeCancelQueue, control.HandleBody{Handle: q.handle}.AppendTo(nil))
	return err
}

// Close ends the queue; its work ends as revoked. A call of Completions
// that waits is woken.
func (q *Queue) Close(ctx context.Context) error {
	if !q.s.disown(q) {
		return nil
	}
	q.closed.Store(true)
	err := q.s.destroy(ctx, control.TypeCloseQueue, q.handle)
	q.release()
	return err
}

// release wakes the collector and unmaps the ring.
func (q *Queue) release() {
	q.closed.Store(true)
	q.submit.Lock() // see ring.Client
	defer q.submit.Unlock()
	_ = q.ring.Close() // a failed munmap leaves the mapping, which harms nobody
}
