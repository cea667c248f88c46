package manager

import (
	"sync"
	"time"

	"capgpu/gpuerr"
)

// idleWatch ends an object that has been idle for too long: since its start, or since its
// last activity ended.
type idleWatch struct {
	after time.Duration
	end   func() // called once, by a goroutine of its own

	mu sync.Mutex
	// +checklocks:mu
	busy int
	// +checklocks:mu
	since time.Time // when busy became 0
	// +checklocks:mu
	over  bool        // end or stop was called
	timer *time.Timer // of expire
}

func newIdleWatch(after time.Duration, end func()) *idleWatch {
	w := &idleWatch{after: after, end: end, since: time.Now()}
	w.timer = time.AfterFunc(after, w.expire)
	return w
}

// begin counts an activity until done is called.
func (w *idleWatch) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy++
	w.timer.Stop()
}

func (w *idleWatch) done() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy--; w.busy == 0 && !w.over {
		w.since = time.Now()
		w.timer.Reset(w.after)
	}
}

func (w *idleWatch) expire() {
	w.mu.Lock()
	idle := !w.over && w.busy == 0 && time.Since(w.since) >= w.after
	w.over = w.over || idle
	w.mu.Unlock()
	if idle {
		w.end()
	}
}

// stop prevents the call of end.
func (w *idleWatch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.timer.Stop()
}

// errIdle is why a connection without a session and without requests ends.
var errIdle = gpuerr.New(gpuerr.Disconnected, "the connection was idle (idleTimeout of the policy); connect again")
