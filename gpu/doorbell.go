package gpu

import (
	"context"
	"runtime/debug"

	"capgpu/gpuerr"
)

// rest sleeps until there may be something to do.
func (q *queue) rest(gone, lost <-chan struct{}) error {
	q.sleeping.Swap(true) // and then looks: see ring.view for why not Store
	defer q.sleeping.Store(false)
	if q.headEnded() || q.turnCame() {
		return nil
	}
	if !q.deaf && q.mayFetch() {
		q.armed = true
		q.spin.sleeps()
		q.arm <- q.sleep
	}
	select {
	case <-q.wake:
	case err := <-q.rang:
		q.armed = false
		q.spin.rung()
		if gpuerr.CodeOf(err) == gpuerr.Disconnected {
			q.deaf = true // what was published is taken; it ends, and the queue when it is closed
			return nil
		}
		return err
	case ended := <-q.cancels:
		q.drain(cancelledOutcome, true)
		close(ended)
	case <-gone:
	case <-lost:
	}
	return nil
}

// runDoorbell waits for the client, when runQueue asks for it.
func (q *queue) runDoorbell() {
	for ctx := range q.arm {
		q.rang <- q.listen(ctx)
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
		q.stopWait()
		<-q.rang
		q.armed = false
		q.sleep, q.stopWait = context.WithCancel(context.Background())
	}
}
