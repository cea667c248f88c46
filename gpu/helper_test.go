package gpu

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf/fake"
	"capgpu/gpu/backend"
	"capgpu/gpu/backend/engine/enginetest"
	"capgpu/gpu/backend/mock"
	"capgpu/gpu/handles"
	"capgpu/gpu/heap"
	"capgpu/internal/leakcheck"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

func TestMain(m *testing.M) {
	os.Exit(leakcheck.Run(m, enginetest.Clean))
}

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
	r := newRig(t, append(options, func(c *Config, _ *fake.Options) { c.newRing = newTestRing })...)
	r.mem = true
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

// idle checks that an account holds nothing, when what was closed is reclaimed, but the
// memory that a live session keeps for its next buffer.
func (r *rig) idle(s *Session) {
	r.t.Helper()
	r.reclaimed()
	_, chunks := s.heaps.Shared.ChunkBytes()
	kept := uint64(chunks * heap.DescriptorCount)
	if kept == 0 {
		require.NoError(r.t, s.account.Zero())
	}
	for _, e := range s.account.Snapshot() {
		switch {
		case e.Class == ledger.Descriptors:
			require.Equal(r.t, kept, e.Reserved+e.Used, "descriptors")
		case !e.Class.Spent():
			require.Zero(r.t, e.Reserved+e.Used, "%v", e.Class)
		}
	}
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
	b, err := handles.Lookup[buffer](s.handles, h)
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
	q, err := handles.Lookup[queue](s.handles, info.Handle)
	require.NoError(r.t, err)
	if r.mem {
		c.mem = q.ring.(*memRing)
		return c
	}
	c.ring = attach(r.t.(testing.TB), s, info.Handle)
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
		c.mem.add(memEntry{e, bindings, inline})
		return c.next
	}
	require.NoError(c.t, c.ring.Push(&e, bindings, inline))
	require.NoError(c.t, c.ring.Flush())
	return c.next
}

// take waits for the next n completions, for each not too long.
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
			patience.Reset(10 * time.Second)
			c.mem.bell() // room for more
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

func requireOK(t testing.TB, cs ...ring.Completion) {
	t.Helper()
	for _, c := range cs {
		require.Equal(t, outcome.Success, c.Outcome, "entry %d: %v", c.UserData, c.Code)
	}
}

func (r *rig) idleButBuffers(s *Session) {
	r.t.Helper()
	require.Zero(r.t, s.Budget()[ledger.InFlight].Reserved+s.Budget()[ledger.InFlight].Used)
	require.NoError(r.t, r.dev.Check())
}

func requireNotOK(t testing.TB, c ring.Completion) {
	t.Helper()
	require.NotEqual(t, outcome.OK, c.Outcome.Kind)
}
