package gpu

import "sync"

// memoSet is the queues of a session that remember what they launched (memo.go). What is
// remembered keeps a program's code, whose memory is charged only until the program is
// released: so then each of them looks through its memo. The zero value is empty.
type memoSet struct {
	mu sync.Mutex
	// +checklocks:mu
	queues map[*queue]struct{}
}

// join is called before the queue resolves a launch to remember it, while nothing that it
// will find can have been released.
func (m *memoSet) join(q *queue) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.queues == nil {
		m.queues = map[*queue]struct{}{}
	}
	m.queues[q] = struct{}{}
}

func (m *memoSet) leave(q *queue) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.queues, q)
}

// forget has the queues forget what cannot be used any more: soon, and without waiting for
// their clients.
func (m *memoSet) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for q := range m.queues {
		if !q.burst.stale.Swap(true) { // else it is on its way
			q.rouse()
			nudge(q.wake)
		}
	}
}

// forget drops what the queue remembers of closed objects, if it was told to.
func (q *queue) forget() {
	b := &q.burst
	if !b.stale.Load() || !b.stale.Swap(false) {
		return
	}
	for _, r := range b.memo.slots {
		if r == nil {
			continue
		}
		if !r.open() {
			r.drop()
		}
		if r.fitness != fit {
			r.ready = nil // it may be of any program that the slot ever held
		}
	}
	clear(q.ready)
}
