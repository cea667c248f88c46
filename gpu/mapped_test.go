package gpu

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/gpuerr"
	"capgpu/ring"
)

// mapper is a mock that reaches only memory that it was told of, and keeps recordings.
type mapper struct {
	backend.Backend
	full bool // there is no place for a group

	mu      sync.Mutex
	memory  map[ddf.DMABuffer]uint32 // by group
	lists   map[uint64]bool
	bad     []string
	fails   error // of the next Unmap
	readied int   // entries that Ready was asked for
	unready error // its answer
}

func newMapper(t *testing.T) *mapper {
	dev, err := mock.New(mock.Options{})
	require.NoError(t, err)
	return &mapper{Backend: dev, memory: map[ddf.DMABuffer]uint32{}, lists: map[uint64]bool{}}
}

func (m *mapper) Map(_ context.Context, c *backend.Context, d ddf.DMABuffer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.full {
		return gpuerr.New(gpuerr.Busy, "there is no place")
	}
	m.memory[d] = c.Group
	return nil
}

func (m *mapper) Unmap(_ *backend.Context, d ddf.DMABuffer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.memory[d]; !ok || len(m.lists) > 0 {
		m.bad = append(m.bad, "an unmap of memory that is not mapped, or is in a list")
	}
	if m.fails != nil {
		return m.fails
	}
	delete(m.memory, d)
	return nil
}

func (m *mapper) Ready(_ context.Context, c *backend.Context, entries []backend.Job) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.readied += len(entries)
	return m.unready
}

func (m *mapper) Forget(list uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.lists, list)
}

func (m *mapper) Submit(j *backend.Job) error {
	m.mu.Lock()
	if j.Op != backend.OpList && j.Recording != 0 {
		m.bad = append(m.bad, "work that is no list has the number of one")
	}
	if j.Recording != 0 {
		m.lists[j.Recording] = true
	}
	j.EachSpan(func(s backend.Span) bool {
		for d, group := range m.memory {
			if off := s.IOVA - uint64(d.IOVA()); group == j.Context.Group && off < d.Size() && uint64(len(s.Host)) <= d.Size()-off {
				return true
			}
		}
		m.bad = append(m.bad, "a span that is not mapped")
		return true
	})
	m.mu.Unlock()
	return m.Backend.Submit(j)
}

// Memory is mapped before a job has it, and unmapped before it is freed, for small and large
// buffers; a list is forgotten before what it names.
func TestMapper(t *testing.T) {
	m := newMapper(t)
	r := newRig(t, withBackend(m))
	s := r.open("alice")
	q := r.queue(s, 16, 4096)
	small, large := buf(t, s, 4096), buf(t, s, 4<<20)
	require.Len(t, m.memory, 2)
	requireOK(t, q.copy(large, small, 4096))
	q.launch(prog(t, s, "vecadd_f32"), whole(small), whole(small), whole(small))
	requireOK(t, q.one())

	require.NoError(t, s.DestroyBuffer(large))
	require.Len(t, m.memory, 1)
	require.Error(t, r.dev.Movable())
	require.NoError(t, s.Close())
	r.close()
	require.Empty(t, m.memory)
	require.Empty(t, m.bad)
}

// A session is told that there is no place for it, and holds nothing.
func TestMapRefused(t *testing.T) {
	m := newMapper(t)
	r := newRig(t, withBackend(m))
	s := r.open("alice")
	m.full = true
	_, err := s.CreateBuffer(t.Context(), 4096, 0)
	require.ErrorIs(t, err, gpuerr.Busy)
	require.NoError(t, r.dev.Check())
	require.Zero(t, r.dev.cfg.DMA.Usage().UsedBytes)
	m.full = false
	buf(t, s, 4096)
}

// An unmap that fails is the loss of the device, as an IOMMU's is.
func TestUnmapFails(t *testing.T) {
	m := newMapper(t)
	r := newRig(t, withBackend(m))
	s := r.open("alice")
	large := buf(t, s, 4<<20)
	m.mu.Lock()
	m.fails = errors.New("the engine does not die")
	m.mu.Unlock()
	require.NoError(t, s.DestroyBuffer(large))
	<-r.dev.Lost()
	require.ErrorContains(t, r.dev.Err(), "does not die")
	require.Error(t, s.account.Zero(), "memory that the device may still reach stays charged")
	m.mu.Lock()
	m.fails = nil
	m.mu.Unlock()
	r.once.Do(func() {}) // not as a healthy one
	require.Error(t, r.dev.Close(t.Context()), "the books say what was not returned")
	require.Error(t, r.fn.Close(), "nor was the memory")
}

// A list has the same number in each replay without patches, and none with some; another list
// has another.
func TestRecordings(t *testing.T) {
	m := newMapper(t)
	r := newRig(t, withBackend(m))
	s := r.open("alice")
	q := r.queue(s, 16, 4096)
	b := buf(t, s, 4096)
	fills := func() Handle {
		var rec recorder
		rec.fill(b, 0, 4096, 1)
		return rec.record(t, s)
	}
	m.unready = gpuerr.New(gpuerr.IO, "a program was not compiled")
	var none recorder
	none.fill(b, 0, 4096, 1)
	_, err := none.try(t, s)
	require.ErrorIs(t, err, gpuerr.IO)
	m.unready, m.readied = nil, 0
	first, second := fills(), fills()
	require.Equal(t, 2, m.readied)
	for range 2 {
		for _, list := range []Handle{first, second} {
			q.replay(list)
			requireOK(t, q.one())
		}
	}
	q.replay(first, ring.BindingPatch(0, 0, 0, 64))
	requireOK(t, q.one())
	m.mu.Lock()
	require.Len(t, m.lists, 2)
	m.mu.Unlock()

	require.NoError(t, s.CloseList(first))
	m.mu.Lock()
	require.Len(t, m.lists, 1)
	m.mu.Unlock()
	require.NoError(t, s.DestroyBuffer(b)) // kills the second
	m.mu.Lock()
	require.Empty(t, m.lists)
	m.mu.Unlock()
	require.NoError(t, s.Close())
	r.close()
	require.Empty(t, m.bad)
}
