package ringtest

import (
	"context"
	"sync"
	"time"

	"capgpu/gpuerr"
	"capgpu/ring"
)

// wake is a wake pipe without a pipe: wakes that nobody waited for count as one.
type wake struct {
	late     func(toDriver bool) time.Duration
	toDriver bool
	pending  chan struct{} // capacity 1
	closed   chan struct{} // the receiver's end
	gone     chan struct{} // the sender's end
	closing  sync.Once
	leaving  sync.Once

	mu sync.Mutex
	// +checklocks:mu
	onWake func()
}

func newWake(late func(bool) time.Duration, toDriver bool) *wake {
	return &wake{late: late, toDriver: toDriver, pending: make(chan struct{}, 1), closed: make(chan struct{}), gone: make(chan struct{})}
}

func (w *wake) ends() ring.Wake { return ring.Wake{Sender: sender{w}, Receiver: w} }

func (w *wake) arrive() {
	select {
	case w.pending <- struct{}{}:
	default:
	}
	w.tell()
}

// OnWake has f called with each wake, and when the sender is closed.
func (w *wake) OnWake(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onWake = f
}

func (w *wake) tell() {
	w.mu.Lock()
	f := w.onWake
	w.mu.Unlock()
	if f != nil {
		f()
	}
}

// Wait implements ring.Receiver.
func (w *wake) Wait(ctx context.Context) error {
	select { // a wake that came counts before any end
	case <-w.closed:
		return errClosed
	case <-w.pending:
		return nil
	default:
	}
	select {
	case <-w.closed:
		return errClosed
	case <-w.pending:
		return nil
	case <-w.gone:
		return errGone
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Drain implements ring.Receiver: Wait leaves nothing.
func (*wake) Drain() {}

// Take implements ring.Receiver.
func (w *wake) Take() error {
	select {
	case <-w.pending:
		return nil
	default:
		return w.Err()
	}
}

// Err implements ring.Receiver.
func (w *wake) Err() error {
	select {
	case <-w.closed:
		return errClosed
	case <-w.gone:
		return errGone
	default:
		return nil
	}
}

// FD implements ring.Receiver.
func (*wake) FD() int { return -1 }

// DupFD implements ring.Receiver.
func (*wake) DupFD() (int, error) { return -1, errFD }

// Close implements ring.Receiver.
func (w *wake) Close() error {
	w.closing.Do(func() { close(w.closed) })
	return nil
}

// sender is the other end of a wake.
type sender struct{ w *wake }

// Signal implements ring.Sender.
func (s sender) Signal() error {
	select {
	case <-s.w.gone:
		return errClosed
	case <-s.w.closed:
		return errGone
	default:
	}
	late := time.Duration(0)
	if s.w.late != nil {
		late = s.w.late(s.w.toDriver)
	}
	switch {
	case late == 0:
		s.w.arrive()
	case late > 0:
		time.AfterFunc(late, s.w.arrive)
	}
	return nil
}

// DupFD implements ring.Sender.
func (s sender) DupFD() (int, error) { return -1, errFD }

// Close implements ring.Sender.
func (s sender) Close() error {
	s.w.leaving.Do(func() { close(s.w.gone) })
	s.w.tell()
	return nil
}

var (
	errClosed = gpuerr.New(gpuerr.Closed, "this end of the wake is closed")
	errGone   = gpuerr.New(gpuerr.Disconnected, "the other end of the wake is closed")
	errFD     = gpuerr.New(gpuerr.Unimplemented, "a ring within one process has no descriptors")
)
