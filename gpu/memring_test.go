package gpu

import (
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
	unread    []ring.Completion
	written   []ring.Completion
	completed int
	read      int
	doorbell  func()
	news      chan struct{}
	code      gpuerr.Code
	broken    bool
	bugIn     string // the method that panics
	hidden    int    // entries that are pushed and not published yet, while hides
	hides     bool
}

type memEntry struct {
	ring.Entry
	bindings []ring.Binding
	inline   []byte
}

func newTestRing(cfg ring.Config) (serverRing, error) { return newMemRing(cfg), nil }

func newMemRing(cfg ring.Config) *memRing {
	return &memRing{cfg: cfg, news: make(chan struct{}, 1)}
}

// add is the client's push and flush.
func (m *memRing) add(x memEntry) {
	m.mu.Lock()
	m.entries = append(m.entries, x)
	if m.hides {
		m.hidden++
	}
	m.mu.Unlock()
	m.bell()
}

// hide has what is pushed from now on published at once, by show.
func (m *memRing) hide() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hides = true
}

func (m *memRing) show() {
	m.mu.Lock()
	m.hides, m.hidden = false, 0
	m.mu.Unlock()
	m.bell()
}

// tail is how many are published. The ring is locked.
func (m *memRing) tail() int { return len(m.entries) - m.hidden }

func (m *memRing) HandOut() (int, int, int, error) {
	return -1, -1, -1, errors.New("this ring is a model and has no descriptors")
}

func (m *memRing) TakeMany(b *ring.Batch, most int) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b.Entries = b.Entries[:0]
	m.bug("TakeMany")
	if m.broken {
		return 0, gpuerr.New(gpuerr.Protocol, "sqTail went back")
	}
	most = min(most, m.tail()-m.taken, int(2*m.cfg.Entries)-(m.taken-m.read), ring.BatchEntries)
	for range most {
		b.Entries = append(b.Entries, m.entries[m.taken].take(m.cfg.ArgBytes))
		m.taken++
	}
	return most, nil
}

// take checks an entry as a ring does.
func (x *memEntry) take(argBytes uint32) ring.Taken {
	t := ring.Taken{Entry: x.Entry}
	if err := ring.Check(&t.Entry, argBytes); err != nil {
		t.Code = gpuerr.CodeOf(err)
	} else if t.Op == ring.OpLaunch {
		args := make([]uint64, 4*int(t.Count)+(int(t.InlineBytes())+7)/8)
		for i := range min(int(t.Count), len(x.bindings)) {
			bind := x.bindings[i]
			args[4*i], args[4*i+1], args[4*i+2] = bind.Buffer, bind.Off, bind.Len
		}
		for i, c := range x.inline[:min(len(x.inline), int(t.InlineBytes()))] {
			args[4*int(t.Count)+i/8] |= uint64(c) << (i % 8 * 8)
		}
		for i := range int(t.Count) {
			if w := args[4*i:]; w[0] == 0 || w[1]+w[2] < w[2] {
				t.Code = gpuerr.Invalid
				return t
			}
		}
		t.Args = args
	}
	return t
}

func (m *memRing) Ready() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.readyLocked()
}

func (m *memRing) Published() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tail() - m.taken
}

func (m *memRing) Marks() (taken, published, collected uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return uint64(m.taken), uint64(m.tail()), uint64(m.read)
}

// bug panics where the test wants it.
//
// +checklocks:m.mu
func (m *memRing) bug(method string) {
	if m.bugIn == method {
		panic("bug")
	}
}

func (m *memRing) CompleteMany(cs []ring.Completion) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bug("CompleteMany")
	for _, c := range cs {
		m.written = append(m.written, c)
		m.completed++
	}
}

func (m *memRing) Publish(cs []ring.Completion) {
	m.CompleteMany(cs)
	m.mu.Lock()
	m.unread = append(m.unread, m.written...)
	m.written = nil
	m.mu.Unlock()
	nudge(m.news)
}

// bell wakes the driver.
func (m *memRing) bell() {
	m.mu.Lock()
	ring := m.doorbell
	m.mu.Unlock()
	if ring != nil {
		ring()
	}
}

func (m *memRing) OnDoorbell(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.doorbell = f
}

func (m *memRing) Doorbell() int { return -1 }
func (m *memRing) Drain() error  { return nil }

func (m *memRing) Arm() (ready bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bug("Arm")
	return m.readyLocked(), nil
}

// +checklocks:m.mu
func (m *memRing) readyLocked() bool {
	return m.broken || (m.taken < m.tail() && m.taken-m.read < int(2*m.cfg.Entries))
}

func (m *memRing) Close(code gpuerr.Code) {
	m.mu.Lock()
	m.unread = append(m.unread, m.written...)
	m.written = nil
	m.code = code
	m.mu.Unlock()
	nudge(m.news)
}
