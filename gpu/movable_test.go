package gpu

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/gpu/backend/mock"
	"capgpu/gpuerr"
	"capgpu/ring"
)

// movablePool lends memory that another device can go on with.
type movablePool struct {
	ddf.DMAPool
	mu  sync.Mutex
	all map[ddf.IOVA]*movable
}

type movable struct {
	ddf.DMABuffer
	gone bool // it is another device's
}

func (m *movable) Free() error {
	if m.gone {
		return nil
	}
	return m.DMABuffer.Free()
}

func (m *movable) Scrub(off, n uint64) error {
	if m.gone {
		return nil
	}
	return m.DMABuffer.Scrub(off, n)
}

func (m *movable) FD() int {
	if m.gone {
		return -1
	}
	return m.DMABuffer.FD()
}

func (p *movablePool) Alloc(ctx context.Context, bytes uint64) (ddf.DMABuffer, error) {
	b, err := p.DMAPool.Alloc(ctx, bytes)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m := &movable{DMABuffer: b}
	p.all[b.IOVA()] = m
	return m, nil
}

// take is the manager's side of an adoption.
func (p *movablePool) take(_ context.Context, iova ddf.IOVA, generation uint64) (ddf.DMABuffer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.all[iova]
	if m == nil || m.Generation() != generation {
		return nil, gpuerr.New(gpuerr.Stale, "no memory at %#x of generation %d", uint64(iova), generation)
	}
	return &movable{DMABuffer: m.DMABuffer}, nil
}

// show is take for a successor that fails.
func (p *movablePool) show(ctx context.Context, iova ddf.IOVA, generation uint64) (ddf.DMABuffer, error) {
	m, err := p.take(ctx, iova, generation)
	if err == nil {
		m.(*movable).gone = true // it is not the successor's yet
	}
	return m, err
}

// deadRing is what is left of a ring that another goes on with.
type deadRing struct{}

func (deadRing) HandOut() (int, int, int, error)             { return -1, -1, -1, gpuerr.Closed }
func (deadRing) TakeMany(b *ring.Batch, _ int) (int, error)  { b.Entries = b.Entries[:0]; return 0, nil }
func (deadRing) Ready() bool                                 { return false }
func (deadRing) Published() int                              { return 0 }
func (deadRing) Marks() (taken, published, collected uint64) { return 0, 0, 0 }
func (deadRing) Publish([]ring.Completion)                   {}
func (deadRing) Arm() (ready bool, err error)                { return false, nil }
func (deadRing) Drain() error                                { return nil }
func (deadRing) Doorbell() int                               { return -1 }
func (deadRing) OnDoorbell(func())                           {}
func (deadRing) Close(gpuerr.Code)                           {}

// newMovableRig is a rig with a device that another can go on with.
func newMovableRig(t testing.TB, options ...rigOption) (*rig, *movablePool) {
	r := newRig(t, options...)
	m := &movablePool{DMAPool: r.dev.cfg.DMA, all: map[ddf.IOVA]*movable{}}
	r.dev.cfg.DMA = m
	return r, m
}

// told is what a driver tells its successor, as it comes out at the other end.
func told(t testing.TB, r *rig) (*Snapshot, []int) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	require.NoError(t, r.dev.Freeze(ctx))
	img, rings, err := r.dev.Snapshot()
	require.NoError(t, err)
	fds := dupAll(t, rings)
	b, err := json.Marshal(img)
	require.NoError(t, err)
	var read Snapshot
	require.NoError(t, json.Unmarshal(b, &read))
	return &read, fds
}

func dupAll(t testing.TB, rings []RingFDs) (fds []int) {
	t.Helper()
	for _, r := range rings {
		three, err := r.Dup()
		require.NoError(t, err)
		fds = append(fds, three[:]...)
	}
	return fds
}

// successor is a device that serves nobody yet, on the same function.
func successor(t testing.TB, r *rig, pool *movablePool) (*Device, *mock.Device) {
	t.Helper()
	b, err := mock.New(mock.Options{LogEntries: 1024})
	require.NoError(t, err)
	grants := r.fn.Grants()
	d, err := New(Config{Info: grants.Device, DMA: pool, Backend: b, Audit: grants.Audit})
	require.NoError(t, err)
	return d, b
}

// dies ends the device of a rig as a process ends: nothing is dismantled.
func (r *rig) dies(pool *movablePool) {
	pool.mu.Lock()
	for _, m := range pool.all {
		m.gone = true
	}
	clear(pool.all)
	pool.mu.Unlock()
	r.dev.reactor.mail.call(func() {
		for _, s := range r.dev.sessionList() {
			for _, q := range s.queues {
				q.ring.(*ring.Server).Drop()
				q.ring = deadRing{}
			}
		}
	})
	r.dev.Thaw()
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	require.NoError(r.t, r.dev.Close(ctx))
}

// handOver has a successor go on with all that the device has.
func (r *rig) handOver(t *testing.T, pool *movablePool) (*Device, *mock.Device) {
	t.Helper()
	img, fds := told(t, r)
	d, b := successor(t, r, pool)
	require.NoError(t, d.Restore(t.Context(), img, fds, pool.take))
	before, after := r.dev.Status(""), d.Status("")
	require.Equal(t, plainStatus(before), plainStatus(after))
	require.NoError(t, d.Check())
	pool.mu.Lock()
	all := map[ddf.IOVA]*movable{}
	for iova, m := range pool.all {
		all[iova] = &movable{DMABuffer: m.DMABuffer}
	}
	pool.mu.Unlock()
	r.dies(pool)
	pool.mu.Lock()
	pool.all = all
	pool.mu.Unlock()
	d.Thaw()
	r.dev = d
	return d, b
}
