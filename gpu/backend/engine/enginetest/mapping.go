package enginetest

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/ddf/fake"
	"capgpu/gpu/backend"
	"capgpu/gpu/backend/engine"
	"capgpu/gpu/gputest/backendtest"
)

// Mapping is a Backend that maps memory for a group when its first job with that comes.
type Mapping struct {
	*engine.Backend
	Engines *Engines // nil: they are others
	pool    ddf.DMAPool
	Stuck   bool // memory cannot be unmapped

	mu     sync.Mutex
	memory []ddf.DMABuffer
	mapped map[mapKey]*mapping
}

// mapping is memory that a group maps, or is mapping.
type mapping struct {
	context *backend.Context
	mapped  chan struct{} // closed when it is
	err     error         // once mapped is closed
}

type mapKey struct {
	group uint32
	iova  ddf.IOVA
}

// NewMapping makes the backend of engines, with 1 GiB of the host's memory in o.
func NewMapping(t testing.TB, e ddf.Engines, o engine.Options) *Mapping {
	t.Helper()
	f, err := fake.New(fake.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	o.Engines, o.MemoryBytes = e, 1<<30
	b, err := engine.New(t.Context(), o)
	require.NoError(t, err)
	own, _ := e.(*Engines)
	return &Mapping{Backend: b, Engines: own, pool: f.Grants().DMA, mapped: map[mapKey]*mapping{}}
}

// Submit implements backend.Backend.
func (m *Mapping) Submit(job *backend.Job) error {
	if job != nil {
		var err error
		job.EachSpan(func(s backend.Span) bool {
			err = m.Ensure(job.Context, s)
			return err == nil
		})
		if err != nil {
			return err
		}
	}
	return m.Backend.Submit(job)
}

// Ensure has the memory of a span mapped for a group.
func (m *Mapping) Ensure(c *backend.Context, s backend.Span) error {
	own := &backend.Context{}
	if c != nil {
		own.Group = c.Group
	}
	d, first := m.claim(own, s)
	if d == nil {
		return nil
	}
	if first != nil {
		defer close(first.mapped)
		first.err = m.Map(context.Background(), own, d)
	}
	at := m.mappingOf(own.Group, d)
	if first == nil {
		<-at.mapped // by another goroutine
	}
	return at.err
}

// claim is the memory of a span, and its mapping if the caller is to make that.
func (m *Mapping) claim(own *backend.Context, s backend.Span) (d ddf.DMABuffer, first *mapping) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.memory {
		if s.IOVA < uint64(d.IOVA()) || s.IOVA > uint64(d.IOVA())+d.Size() {
			continue
		}
		key := mapKey{own.Group, d.IOVA()}
		if m.mapped[key] == nil {
			first = &mapping{context: own, mapped: make(chan struct{})}
			m.mapped[key] = first
		}
		return d, first
	}
	return nil, nil
}

func (m *Mapping) mappingOf(group uint32, d ddf.DMABuffer) *mapping {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mapped[mapKey{group, d.IOVA()}]
}

// Alloc is memory until the test's cleanups.
func (m *Mapping) Alloc(t testing.TB, bytes int) backend.Span {
	t.Helper()
	d, err := m.pool.Alloc(t.Context(), uint64(max(bytes, 1)))
	require.NoError(t, err)
	m.mu.Lock()
	m.memory = append(m.memory, d)
	m.mu.Unlock()
	t.Cleanup(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		for key, x := range m.mapped {
			if key.iova == d.IOVA() {
				require.Equal(t, m.Stuck, m.Unmap(x.context, d) != nil)
				delete(m.mapped, key)
			}
		}
		require.NoError(t, d.Free())
	})
	return backend.Span{Host: d.Bytes()[:bytes:bytes], IOVA: uint64(d.IOVA())}
}

// Conformance runs backendtest over engines, which have local memory or not.
func Conformance(t *testing.T, engines *Engines, local bool) {
	inapplicable := []string{
		"Trap/MemoryGone", "List/EndsAtTrap", // they need memory that the engine does not have
		"Context/Preemption", "Run/AsSubmit", "Run/Programs", "Run/Unfit", "Run/TrapEndsItsContext", "Run/Lists",
		"Run/ListEndsAtTrap", "Run/OnlyWhenIdle", "Run/ResetAndClose", "Run/ResetBeside", // it is no Runner, nor a Preempter
	}
	if !local {
		inapplicable = append(inapplicable, "Local/ZeroInAndOut", "Local/Bounded", "Local/LostWithItsGroup", "Local/LostWithAReset")
	}
	backendtest.Run(t, func(t *testing.T) backendtest.Harness {
		m := NewMapping(t, engines, engine.Options{})
		return backendtest.Harness{Backend: m, Alloc: func(t *testing.T, bytes int) backend.Span { return m.Alloc(t, bytes) }, MaxBytes: 1 << 20, MaxRounds: 3}
	}, inapplicable...)
}
