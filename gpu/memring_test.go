package gpu

import (
	"context"
	"errors"
	"sync"

	"capgpu/gpuerr"
	"capgpu/ring"
)

// memRing is a ring without shared memory: what the contract of ring.Server says
// and nothing else. Its client end is methods of the same object.
type memRing struct {
	mu        sync.Mutex
	cfg       ring.Config
	entries   []memEntry
	taken     int
	consumed  int
	unread    []ring.Completion
	written   []ring.Completion
	completed int
	read      int
	work      chan struct{}
	news      chan struct{}
	code      gpuerr.Code
	broken    bool
	bugIn     string // the method that panics
}

type memEntry struct {
	ring.Entry
	bindings []ring.Binding
	inline   []byte
}

func newTestRing(cfg ring.Config) (serverRing, error) { return newMemRing(cfg), nil }

func newMemRing(cfg ring.Config) *memRing {
	return &memRing{cfg: cfg, work: make(chan struct{}, 1), news: make(chan struct{}, 1)}
}

// add is the client's push and flush.
func (m *memRing) add(x memEntry) {
	m.mu.Lock()
	m.entries = append(m.entries, x)
	m.mu.Unlock()
	nudge(m.work)
}

func (m *memRing) HandOut() (int, int, int, error) {
	return -1, -1, -1, errors.New("this ring is a model and has no descriptors")
}

func (m *memRing) Take(e *ring.Entry) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken {
		return false, gpuerr.New(gpuerr.Protocol, "sqTail went back")
	}
	if m.taken == len(m.entries) || m.taken-m.read >= int(2*m.cfg.Entries) {
		return false, nil
	}
	*e = m.entries[m.taken].Entry
	m.taken++
	return true, nil
}

func (m *memRing) Published() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.entries) - m.taken
}

func (m *memRing) Args(e *ring.Entry, bindings []ring.Binding, inline []byte) ([]ring.Binding, []byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bug("Args")
	x := m.entries[m.taken-1]
	return append(bindings, x.bindings...), append(inline, x.inline...), nil
}

// bug panics where the test wants it.
//
// +checklocks:m.mu
func (m *memRing) bug(method string) {
	if m.bugIn == method {
		panic("bug")
	}
}

func (m *memRing) Consumed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.consumed = m.taken
}

func (m *memRing) Complete(c *ring.Completion) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bug("Complete")
	m.written = append(m.written, *c)
	m.completed++
}

func (m *memRing) Flush() {
	m.mu.Lock()
	m.unread = append(m.unread, m.written...)
	m.written = nil
	m.mu.Unlock()
	nudge(m.news)
}

func (m *memRing) WaitWork(ctx context.Context) error {
	for {
		m.mu.Lock()
		if m.bugIn == "WaitWork" {
			m.mu.Unlock()
			panic("bug")
		}
		ready := m.broken || (m.taken < len(m.entries) && m.taken-m.read < int(2*m.cfg.Entries))
		m.mu.Unlock()
		if ready {
			return nil
		}
		select {
		case <-m.work:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (m *memRing) Close(code gpuerr.Code) {
	m.Flush()
	m.mu.Lock()
	m.code = code
	m.mu.Unlock()
	nudge(m.news)
}
