package gpu

import (
	"sync"
	"sync/atomic"

	"capgpu/gpu/backend"
)

// mailbox is the one part of a reactor that other goroutines touch: calls that they ask
// for, completions of the backend, and queues for which something has happened.
//
// The reactor takes everything at once, at the begin of a round. A sender that finds the
// reactor asleep wakes it: it publishes its mail first, then looks at asleep; the reactor
// sets asleep first, then looks for mail.
type mailbox struct {
	wake   func() // ends a sleep of the reactor
	full   atomic.Bool
	asleep atomic.Bool

	mu sync.Mutex
	// +checklocks:mu
	mail letters
	// +checklocks:mu
	ended bool // the reactor takes no more: calls run on their caller

	// after is held by calls once the reactor has ended.
	after sync.Mutex
}

// letters is what came since the reactor looked last, each kind in the order in which it
// was sent.
type letters struct {
	calls []func()
	done  []backend.Completion
	due   []*queue
}

// post has the reactor run f, and does not wait. It is false when the reactor has ended,
// and f does not run.
func (m *mailbox) post(f func()) bool {
	m.mu.Lock()
	if m.ended {
		m.mu.Unlock()
		return false
	}
	m.mail.calls = append(m.mail.calls, f)
	m.mu.Unlock()
	m.ring()
	return true
}

// call has the reactor run f, and returns when it has. Once the reactor has ended, f runs
// here, one call at a time. The reactor itself does not call it.
func (m *mailbox) call(f func()) {
	ran := make(chan struct{})
	if m.post(func() { f(); close(ran) }) {
		<-ran
		return
	}
	m.after.Lock()
	defer m.after.Unlock()
	f()
}

// completed brings completions.
func (m *mailbox) completed(c backend.Completion) {
	m.mu.Lock()
	m.mail.done = append(m.mail.done, c)
	m.mu.Unlock()
	m.ring()
}

// due says that the reactor has to look at a queue.
func (m *mailbox) due(q *queue) {
	if q.isDue.Swap(true) {
		return // it will
	}
	m.mu.Lock()
	m.mail.due = append(m.mail.due, q)
	m.mu.Unlock()
	m.ring()
}

// ring wakes the reactor if it sleeps.
func (m *mailbox) ring() {
	m.full.Store(true)
	if m.asleep.Load() && m.asleep.CompareAndSwap(true, false) {
		m.wake()
	}
}

// take returns what has come; old is room to be used again. False: nothing has.
func (m *mailbox) take(old letters) (letters, bool) {
	if !m.full.Load() {
		return old, false
	}
	m.full.Store(false) // and then looks: what comes from here on sets it again
	clear(old.calls)
	clear(old.due)
	m.mu.Lock()
	defer m.mu.Unlock()
	mail := m.mail
	m.mail = letters{calls: old.calls[:0], done: old.done[:0], due: old.due[:0]}
	return mail, true
}

// takeDone takes in completions alone, in the midst of a round.
func (m *mailbox) takeDone() []backend.Completion {
	m.mu.Lock()
	defer m.mu.Unlock()
	done := m.mail.done
	m.mail.done = nil
	return done
}

// end has calls run on their callers from here on. It is false while there is mail.
func (m *mailbox) end() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = len(m.mail.calls) == 0
	return m.ended
}
