package gpu

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf/fake"
	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

// tb is what testing.TB and rapid.T have in common.
type tb interface {
	require.TestingT
	Helper()
}

// rig is a device with everything it needs, and what a test may want to see.
type rig struct {
	t    tb
	fn   *fake.Function
	dev  *Device
	mem  bool // rings are models in memory
	once sync.Once
}

type rigOption func(*Config, *fake.Options)

func withBackend(b backend.Backend) rigOption {
	return func(c *Config, _ *fake.Options) { c.Backend = b }
}

func withScript(faults ...mock.Fault) rigOption {
	return func(c *Config, _ *fake.Options) {
		dev, err := mock.New(mock.Options{Script: mock.Script{Faults: faults}, LogEntries: 1024})
		if err != nil {
			panic(err)
		}
		c.Backend = dev
	}
}

// newRig makes a device that is closed, and its books checked, at the end of the
// test.
func newRig(t testing.TB, options ...rigOption) *rig {
	t.Helper()
	r := &rig{t: t}
	var cfg Config
	var fo fake.Options
	for _, o := range options {
		o(&cfg, &fo)
	}
	if cfg.Backend == nil {
		dev, err := mock.New(mock.Options{LogEntries: 1024})
		require.NoError(t, err)
		cfg.Backend = dev
	}
	fn, err := fake.New(fo)
	require.NoError(t, err)
	r.fn = fn
	grants := fn.Grants()
	cfg.Info, cfg.DMA, cfg.Audit = grants.Device, grants.DMA, grants.Audit
	r.dev, err = New(cfg)
	require.NoError(t, err)
	t.Cleanup(r.close)
	return r
}

// newMemRig is newRig with rings in memory, which works on virtual time.
func newMemRig(t testing.TB, options ...rigOption) *rig {
	r := newRig(t, options...)
	r.mem = true
	r.dev.newRing = newTestRing
	return r
}

func (r *rig) close() {
	r.once.Do(func() {
		r.t.Helper()
		ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
		defer stop()
		require.NoError(r.t, r.dev.Close(ctx))
		require.NoError(r.t, r.fn.Close())
	})
}

func (r *rig) open(tenant string, change ...func(*Attach)) *Session {
	r.t.Helper()
	a := Attach{Tenant: tenant, TenantLimits: ledger.NoLimits(), Limits: ledger.NoLimits(), Facet: FacetFull}
	for _, f := range change {
		f(&a)
	}
	s, err := r.dev.OpenSession(a)
	require.NoError(r.t, err)
	return s
}

// idle checks that an account holds nothing.
func (r *rig) idle(s *Session) {
	r.t.Helper()
	require.NoError(r.t, s.account.Zero())
	require.NoError(r.t, r.dev.Check())
}

func buf(t tb, s *Session, bytes uint64) Handle {
	t.Helper()
	info, err := s.CreateBuffer(context.Background(), bytes, 0)
	require.NoError(t, err)
	return info.Handle
}

func host(t tb, s *Session, h Handle) []byte {
	t.Helper()
	b, err := lookup[buffer](s.handles, h)
	require.NoError(t, err)
	return b.host
}

func prog(t tb, s *Session, name string) Handle {
	t.Helper()
	h, _, err := s.OpenProgram(name)
	require.NoError(t, err)
	return h
}

func newFence(t tb, s *Session, initial uint64) Handle {
	t.Helper()
	h, err := s.CreateFence(initial)
	require.NoError(t, err)
	return h
}

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

func (m *memRing) FDs() (int, int, int) { return -1, -1, -1 }

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

func (m *memRing) Args(e *ring.Entry, bindings []ring.Binding, inline []byte) ([]ring.Binding, []byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.entries[m.taken-1]
	return append(bindings, x.bindings...), append(inline, x.inline...), nil
}

func (m *memRing) Consumed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.consumed = m.taken
}

func (m *memRing) Complete(c *ring.Completion) {
	m.mu.Lock()
	defer m.mu.Unlock()
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

// client is the client's end of a queue in tests, over a memRing or a real ring.
type client struct {
	t    tb
	s    *Session
	h    Handle
	mem  *memRing
	ring *ring.Client
	next uint64
}

func (r *rig) queue(s *Session, entries, argBytes uint32) *client {
	r.t.Helper()
	info, err := s.CreateQueue(entries, argBytes)
	require.NoError(r.t, err)
	c := &client{t: r.t, s: s, h: info.Handle}
	q, err := lookup[queue](s.handles, info.Handle)
	require.NoError(r.t, err)
	if r.mem {
		c.mem = q.ring.(*memRing)
		return c
	}
	c.ring = attach(r.t.(testing.TB), info)
	return c
}

func (c *client) push(e ring.Entry, bindings []ring.Binding, inline []byte) uint64 {
	c.t.Helper()
	c.next++
	e.UserData = c.next
	if c.mem != nil {
		if e.Op == ring.OpLaunch {
			e.Count = uint16(len(bindings))
			e.C |= uint64(len(inline)) << 16
			e.D = uint64(len(bindings)*ring.BindingBytes+len(inline)) << 32
		}
		c.mem.mu.Lock()
		c.mem.entries = append(c.mem.entries, memEntry{e, bindings, inline})
		c.mem.mu.Unlock()
		nudge(c.mem.work)
		return c.next
	}
	require.NoError(c.t, c.ring.Push(&e, bindings, inline))
	require.NoError(c.t, c.ring.Flush())
	return c.next
}

// take waits for the next n completions.
func (c *client) take(n int) []ring.Completion {
	c.t.Helper()
	var all []ring.Completion
	patience := time.NewTimer(10 * time.Second)
	defer patience.Stop()
	for len(all) < n {
		if c.mem == nil {
			ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
			var batch [64]ring.Completion
			got, err := c.ring.Wait(ctx, batch[:min(n-len(all), 64)])
			stop()
			require.NoError(c.t, err)
			all = append(all, batch[:got]...)
			continue
		}
		c.mem.mu.Lock()
		got := min(n-len(all), len(c.mem.unread))
		all = append(all, c.mem.unread[:got]...)
		c.mem.unread = c.mem.unread[got:]
		c.mem.read += got
		c.mem.mu.Unlock()
		if got > 0 {
			nudge(c.mem.work) // room for more
			continue
		}
		select {
		case <-c.mem.news:
		case <-patience.C:
			require.FailNow(c.t, "no completion", "have %d of %d", len(all), n)
		}
	}
	return all
}

// one waits for one completion.
func (c *client) one() ring.Completion { c.t.Helper(); return c.take(1)[0] }

// left is what is there without waiting.
func (c *client) left() int {
	c.mem.mu.Lock()
	defer c.mem.mu.Unlock()
	return len(c.mem.unread)
}

func (c *client) launch(program Handle, bindings ...ring.Binding) uint64 {
	c.t.Helper()
	return c.push(ring.LaunchEntry(0, uint64(program), ring.Dim3{}, ring.Dim3{}, 0, 0), bindings, nil)
}

func (c *client) launchFor(deadline time.Duration, program Handle, bindings ...ring.Binding) uint64 {
	c.t.Helper()
	return c.push(ring.LaunchEntry(0, uint64(program), ring.Dim3{}, ring.Dim3{}, 0, uint32(deadline.Microseconds())), bindings, nil)
}

func (c *client) fill(b Handle, off, n uint64, pattern uint32) uint64 {
	c.t.Helper()
	return c.push(ring.FillEntry(0, uint64(b), off, n, pattern, 0), nil, nil)
}

func (c *client) signal(f Handle, v uint64) uint64 {
	c.t.Helper()
	return c.push(ring.SignalEntry(0, uint64(f), v), nil, nil)
}

func (c *client) wait(f Handle, v uint64) uint64 {
	c.t.Helper()
	return c.push(ring.WaitEntry(0, uint64(f), v), nil, nil)
}

func whole(b Handle) ring.Binding { return ring.Binding{Buffer: uint64(b)} }

// handBackend is a device whose every move is the test's.
type handBackend struct {
	limits backend.Limits

	mu       sync.Mutex
	sink     backend.Sink
	jobs     []backend.Job // submitted, in order
	live     map[backend.JobID]bool
	cancels  []backend.JobID
	resets   int
	obedient bool  // completes what it is told to cancel
	resetErr error // what Reset answers
	refuse   error // what Submit answers
	auto     bool  // completes at once, within Submit
	arrived  chan struct{}
}

func newHandBackend() *handBackend {
	return &handBackend{
		limits: backend.Limits{MaxThreadsPerBlock: 256, MaxBlockDim: 256, MaxGridDim: 1024, MaxSharedBytes: 1024, MaxBindings: 4, MaxInlineBytes: 16, MaxJobs: 4, SubgroupSize: 32, CancelBound: 5 * time.Millisecond},
		live:   map[backend.JobID]bool{}, obedient: true, arrived: make(chan struct{}, 1),
	}
}

func (b *handBackend) Info() backend.Info {
	return backend.Info{Name: "hand", MemoryBytes: 1 << 30, Limits: b.limits}
}
func (b *handBackend) Programs() []string { return []string{"p"} }
func (b *handBackend) Builtin(name string) (backend.Program, error) {
	if name != "p" {
		return nil, gpuerr.New(gpuerr.NoProgram, "no program %q", name)
	}
	return handProgram{}, nil
}
func (b *handBackend) Load(context.Context, []byte) (backend.Program, error) {
	return handProgram{}, nil
}

func (b *handBackend) Start(sink backend.Sink) error { b.sink = sink; return nil }

func (b *handBackend) Submit(j *backend.Job) error {
	b.mu.Lock()
	if b.refuse != nil {
		defer b.mu.Unlock()
		return b.refuse
	}
	b.jobs = append(b.jobs, *j)
	id := j.ID
	auto := b.auto
	if !auto {
		b.live[id] = true
	}
	b.mu.Unlock()
	nudge(b.arrived)
	if auto {
		b.sink.Complete(backend.Completion{ID: id, Outcome: outcome.Success, DeviceTime: time.Microsecond})
	}
	return nil
}

func (b *handBackend) Cancel(id backend.JobID) {
	b.mu.Lock()
	b.cancels = append(b.cancels, id)
	tell := b.obedient && b.live[id]
	b.mu.Unlock()
	if tell {
		b.finish(id, outcome.Outcome{Kind: outcome.Cancelled}, 0)
	}
}

func (b *handBackend) Reset(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.resets++
	if b.resetErr == nil {
		clear(b.live)
	}
	return b.resetErr
}

func (b *handBackend) Close() error { return nil }

func (b *handBackend) finish(id backend.JobID, how outcome.Outcome, took time.Duration) {
	b.mu.Lock()
	delete(b.live, id)
	b.mu.Unlock()
	b.sink.Complete(backend.Completion{ID: id, Outcome: how, DeviceTime: took})
}

// nth waits for the nth job (from 0) and returns its id.
func (b *handBackend) nth(t testing.TB, n int) backend.JobID {
	t.Helper()
	patience := time.NewTimer(10 * time.Second)
	defer patience.Stop()
	for {
		b.mu.Lock()
		if n < len(b.jobs) {
			id := b.jobs[n].ID
			b.mu.Unlock()
			return id
		}
		b.mu.Unlock()
		select {
		case <-b.arrived:
		case <-patience.C:
			require.FailNow(t, "the device was never given the job", "job %d", n)
		}
	}
}

// handProgram takes one buffer that it writes.
type handProgram struct{}

func (handProgram) Info() backend.ProgramInfo {
	return backend.ProgramInfo{Name: "p", Bindings: []backend.BindingInfo{{Name: "x", Access: backend.ReadWrite}}, SharedBytes: 512}
}

func (handProgram) NaturalGrid([]uint64) (grid, block backend.Dim3) {
	return backend.Dim3{X: 1, Y: 1, Z: 1}, backend.Dim3{X: 32, Y: 1, Z: 1}
}
