package gpu

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/ddf"
	"capgpu/ddf/fake"
	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/gpu/handles"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

// discrete is a mock with memory of its own.
func discrete(t testing.TB, faults ...mock.Fault) rigOption {
	dev, err := mock.New(mock.Options{LocalBytes: 8 << 20, Script: mock.Script{Faults: faults}})
	require.NoError(t, err)
	return withBackend(dev)
}

func deviceBuf(t tb, s *Session, bytes uint64) Handle {
	t.Helper()
	info, err := s.CreateBuffer(context.Background(), bytes, UsageDevice)
	require.NoError(t, err)
	require.Zero(t, info.MemOff)
	fd, err := s.BufferFD(info.Handle)
	require.NoError(t, err)
	require.Equal(t, -1, fd)
	return info.Handle
}

func (c *client) copy(dst, src Handle, n uint64) ring.Completion {
	c.t.Helper()
	c.push(ring.CopyEntry(0, uint64(dst), 0, uint64(src), 0, n, 0), nil, nil)
	return c.one()
}

// Bytes go into memory that the client is not given by copies, and come back, on a device
// with memory of its own and without.
func TestDeviceBuffers(t *testing.T) {
	for name, options := range map[string][]rigOption{"unified": nil, "discrete": {discrete(t)}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, options...)
			s := r.open("alice")
			hidden, up, down := deviceBuf(t, s, 8192), buf(t, s, 8192), buf(t, s, 8192)
			for i := range 8192 {
				host(t, s, up)[i] = byte(i * 7)
			}

			q := r.queue(s, 16, 4096)
			requireOK(t, q.copy(hidden, up, 8192))
			q.launch(prog(t, s, "vecadd_f32"), whole(hidden), whole(hidden), whole(hidden))
			requireOK(t, q.one())
			requireOK(t, q.copy(hidden, up, 8192), q.copy(down, hidden, 8192))
			require.Equal(t, host(t, s, up), host(t, s, down))

			_, _, err := s.LoadProgram(t.Context(), hidden, 0, 64)
			require.ErrorIs(t, err, gpuerr.Invalid)
			require.ErrorContains(t, err, "usage device")
			require.NoError(t, r.dev.Check())
		})
	}
}

// A buffer of the device is never in a chunk that the client maps.
func TestDeviceBuffersHaveAHeap(t *testing.T) {
	r := newRig(t)
	s := r.open("alice")
	at := func(h Handle) *buffer {
		b, err := handles.Lookup[buffer](s.handles, h)
		require.NoError(t, err)
		return b
	}
	shared, hidden := at(buf(t, s, 4096)), at(deviceBuf(t, s, 4096))
	require.NotEqual(t, fdOf(shared), fdOf(hidden))
	require.NotEqual(t, fdOf(at(buf(t, s, 4096))), fdOf(hidden))
}

// Each kind of memory has its class, and each refuses by itself: there is no other to take.
func TestLocalCharges(t *testing.T) {
	r := newRig(t, discrete(t))
	s := r.open("alice")
	used := func(c ledger.Class) uint64 { return s.Budget()[c].Used }
	shared, hidden := buf(t, s, 8192), deviceBuf(t, s, 2<<20)
	require.EqualValues(t, 8192, used(ledger.HostMemory))
	require.EqualValues(t, 2<<20, used(ledger.DeviceMemory))

	_, err := s.CreateBuffer(t.Context(), 7<<20, UsageDevice)
	require.ErrorIs(t, err, gpuerr.Quota)
	require.Equal(t, "deviceMemory", gpuerr.From(err).Resource)
	require.EqualValues(t, 6<<20, gpuerr.From(err).Available)

	require.NoError(t, s.DestroyBuffer(shared))
	require.NoError(t, s.DestroyBuffer(hidden))
	r.idle(s)
	require.ErrorIs(t, r.dev.Movable(), gpuerr.Unimplemented)
	require.NoError(t, r.dev.Check())
}

// A binding that the device cannot have is refused.
func TestBindingLimits(t *testing.T) {
	r := newRig(t, discrete(t))
	s := r.open("alice")
	b := buf(t, s, 8192)
	q := r.queue(s, 16, 4096)
	p := prog(t, s, "vecadd_f32")
	part := func(off uint64) ring.Binding { return ring.Binding{Buffer: uint64(b), Off: off, Len: 256} }
	q.launch(p, part(0), part(256), part(512))
	requireOK(t, q.one())
	q.launch(p, part(0), part(128), part(512))
	require.Equal(t, gpuerr.LaunchLimit, q.one().Code)
}

// A job that does not stop costs its session its memory, and the others of the tenant that
// have some there. Sessions without, and other tenants, go on.
func TestLocalMemoryIsLostWithItsContext(t *testing.T) {
	r := newRig(t, discrete(t, mock.Fault{Kind: mock.FaultHang, Job: 2}), func(c *Config, _ *fake.Options) {
		c.HangBound = 200 * time.Millisecond
	})
	alice, sister, plain, bob := r.open("alice"), r.open("alice"), r.open("alice"), r.open("bob")
	memory := deviceBuf(t, alice, 4096)
	deviceBuf(t, sister, 4096)
	kept := deviceBuf(t, bob, 4096)
	qa, qb, qp := r.queue(alice, 16, 4096), r.queue(bob, 16, 4096), r.queue(plain, 16, 4096)

	qb.fill(kept, 0, 4096, 7)
	requireOK(t, qb.one())

	qa.fill(memory, 0, 4096, 7)
	qa.fill(memory, 0, 4096, 8)
	ended := qa.take(1)
	require.Equal(t, outcome.TimedOut, ended[0].Outcome.Kind, "%v", ended)

	for _, s := range []*Session{alice, sister} {
		<-s.Done()
		_, err := s.CreateFence(0)
		require.ErrorIs(t, err, gpuerr.DeviceLost)
		require.ErrorContains(t, err, "reason=memoryLost")
	}

	down := buf(t, bob, 4096)
	requireOK(t, qb.copy(down, kept, 4096))
	require.EqualValues(t, 7, host(t, bob, down)[0])
	own := buf(t, plain, 4096)
	qp.fill(own, 0, 4096, 9)
	requireOK(t, qp.one())
	require.NoError(t, r.dev.Err())
	r.reclaimed()
	require.NoError(t, r.dev.Check())
}

// farBackend has memory that nobody may touch.
type farBackend struct {
	*handBackend
	mu   sync.Mutex
	used uint64
}

func (b *farBackend) Info() backend.Info {
	info := b.handBackend.Info()
	info.LocalBytes = 1 << 30
	return info
}

func (b *farBackend) Local(*backend.Context) ddf.DMAPool { return b }

func (b *farBackend) Usage() ddf.PoolUsage { return ddf.PoolUsage{LimitBytes: 1 << 30} }

func (b *farBackend) Alloc(_ context.Context, bytes uint64) (ddf.DMABuffer, error) {
	mem, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += bytes
	return &farBuffer{mem: mem, iova: ddf.IOVA(1<<46 + b.used)}, nil
}

type farBuffer struct {
	mem  []byte
	iova ddf.IOVA
}

func (b *farBuffer) IOVA() ddf.IOVA             { return b.iova }
func (b *farBuffer) Size() uint64               { return uint64(len(b.mem)) }
func (b *farBuffer) Generation() uint64         { return 1 }
func (b *farBuffer) Bytes() []byte              { return b.mem }
func (b *farBuffer) FD() int                    { return -1 }
func (b *farBuffer) Scrub(uint64, uint64) error { return nil }
func (b *farBuffer) Free() error {
	mem := b.mem
	if b.mem = nil; mem == nil {
		return nil
	}
	return unix.Munmap(mem)
}

// The core touches no byte of local memory: a touch would end the process here.
func TestCoreTouchesNoLocalMemory(t *testing.T) {
	far := &farBackend{handBackend: newHandBackend()}
	far.auto = true
	r := newRig(t, withBackend(far))
	s := r.open("alice")
	a, b, up := deviceBuf(t, s, 4096), deviceBuf(t, s, 4<<20), buf(t, s, 4096)
	q := r.queue(s, 16, 4096)
	requireOK(t, q.copy(a, up, 4096), q.copy(b, a, 4096))
	q.launch(prog(t, s, "p"), whole(a))
	q.take(1)
	_, err := s.RecordList(a, 0, 1, 0)
	require.Error(t, err)
	_, _, err = s.LoadProgram(t.Context(), a, 0, 16)
	require.Error(t, err)
	require.NoError(t, s.DestroyBuffer(a))
	require.NoError(t, s.DestroyBuffer(b))
	deviceBuf(t, s, 4096)
	require.NoError(t, s.Close())
	r.reclaimed()
	require.NoError(t, r.dev.Check())
}
