package gpu

import (
	"context"
	"errors"
	"runtime/debug"

	"capgpu/gpuerr"
)

// rest sleeps until there may be something to do.
func (q *queue) rest(gone, lost <-chan struct{}) error {
	q.sleeping.Swap(true) // and then looks: see ring.view for why not Store
	defer q.sleeping.Store(false)
	if q.headEnded() {
		return nil
	}
	if !q.deaf && q.mayFetch() {
		if q.head == q.tail {
			return q.sleepOnRing()
		}
		q.armed = true
		q.arm <- q.freshSlumber().ctx
	}
	select {
	case <-q.wake:
	case err := <-q.rang:
		q.armed = false
		return q.heard(err)
	case ended := <-q.cancels:
		q.cancelled(ended)
	case <-gone:
	case <-lost:
	}
	return nil
}

// heard is what follows a wait for the client.
func (q *queue) heard(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil // roused: serve looks why
	}
	if gpuerr.CodeOf(err) == gpuerr.Disconnected {
		q.deaf = true // what was published is taken; it ends, and the queue when it is closed
		return nil
	}
	return err
}

// sleepOnRing waits for the client with nothing in the device, nor anything else to wait
// for: so no other goroutine comes between. A caller that has something else for the queue
// publishes it and then rouses.
func (q *queue) sleepOnRing() error {
	s := q.freshSlumber()
	if q.called() { // only after that: a caller that rouses from here on finds it
		return nil
	}
	return q.heard(q.listen(s.ctx))
}

// slumber is a wait for the client that others can end.
type slumber struct {
	ctx context.Context
	end context.CancelFunc
}

func newSlumber() *slumber {
	ctx, end := context.WithCancel(context.Background())
	return &slumber{ctx, end}
}

// freshSlumber is one that nobody has ended yet.
func (q *queue) freshSlumber() *slumber {
	s := q.slumber.Load()
	if s.ctx.Err() != nil {
		s = newSlumber()
		q.slumber.Swap(s)
	}
	return s
}

// rouse ends a wait for the client.
func (q *queue) rouse() { q.slumber.Load().end() }

// runDoorbell waits for the client, when runQueue asks for it, and else rouses it when the
// queue or the device goes.
func (q *queue) runDoorbell() {
	gone, lost := q.node.Done(), q.session.dev.lost
	for {
		select {
		case ctx, more := <-q.arm:
			if !more {
				return
			}
			q.rang <- q.listen(ctx)
		case <-gone:
			gone = nil
			q.rouse()
		case <-lost:
			lost = nil
			q.rouse()
		}
	}
}

// listen is WaitWork, where a bug is an error.
func (q *queue) listen(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			q.session.dev.log.Error("a queue ends because of a bug", "session", q.session.id, "panic", p, "stack", string(debug.Stack()))
			err = gpuerr.New(gpuerr.Internal, "the doorbell failed")
		}
	}()
	return q.ring.WaitWork(ctx)
}

// disarm takes the submission side back from runDoorbell.
func (q *queue) disarm() {
	if q.armed {
		q.rouse()
		<-q.rang
		q.armed = false
	}
}
