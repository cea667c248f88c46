package gpu

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/ddf/fake"
	"capgpu/gpu/heap"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/ring"
)

func withDescriptors(n uint64) rigOption {
	return func(c *Config, _ *fake.Options) { c.Limits = limited(ledger.Descriptors, n) }
}

// descriptors are those that all tenants of the rig have.
func (r *rig) descriptors() uint64 {
	for _, e := range r.dev.ledger.Root().Snapshot() {
		if e.Class == ledger.Descriptors {
			return e.Reserved + e.Used
		}
	}
	return 0
}

// The tenants' share of the process's descriptors is bounded over all of them, and given
// back.
func TestDescriptorsAreBounded(t *testing.T) {
	ctx := context.Background()
	r := newMemRig(t, withDescriptors(12))
	s, other := r.open("alice"), r.open("bob")
	big := func() (BufferInfo, error) { return s.CreateBuffer(ctx, 2*heap.CarveBytes, 0) }
	first, err := big()
	require.NoError(t, err)
	q, err := s.CreateQueue(2, 64)
	require.NoError(t, err)
	_, err = big()
	require.NoError(t, err)
	_, err = big()
	require.ErrorIs(t, err, gpuerr.Quota)
	require.ErrorContains(t, err, gpuerr.Refused("descriptors", 1, 0).Error())
	_, err = other.CreateQueue(2, 64)
	require.ErrorIs(t, err, gpuerr.Quota, "over all tenants")
	_, err = r.dev.OpenSession(Attach{Tenant: "carol", TenantLimits: ledger.NoLimits(), Limits: ledger.NoLimits()})
	require.ErrorIs(t, err, gpuerr.Quota)
	require.NoError(t, r.dev.Check(), "what was refused is charged nothing")
	require.NoError(t, s.DestroyBuffer(first.Handle))
	require.NoError(t, s.CloseQueue(q.Handle))
	q, err = other.CreateQueue(2, 64)
	require.NoError(t, err)
	require.NoError(t, other.Close())
	require.NoError(t, s.Close())
	r.reclaimed()
	require.Zero(t, r.descriptors())
}

// The share for tenants leaves the process something, whatever its limit.
func TestDescriptorLimit(t *testing.T) {
	for process, want := range map[uint64]uint64{0: 0, 16: 8, 256: 192, 1024: 768, 65536: 49152} {
		require.Equal(t, want, descriptorLimit(process), "of %d", process)
	}
	require.EqualValues(t, maxMapped, descriptorLimit(1<<64-1))
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}

// A queue that its client has costs the driver three descriptors; after the client has
// closed its end it goes on until it is closed.
func TestQueueCostsThreeDescriptors(t *testing.T) {
	r := newRig(t)
	s := r.open("alice")
	b, f := buf(t, s, 4096), newFence(t, s, 0)
	before, held := openDescriptors(t), r.descriptors()
	info, err := s.CreateQueue(16, 64)
	require.NoError(t, err)
	client := attachNow(t, s, info.Handle)
	require.Equal(t, held+queueDescriptors, r.descriptors())
	_, _, _, err = s.QueueFDs(info.Handle)
	require.ErrorIs(t, err, gpuerr.Invalid, "handed out once")
	wait := ring.WaitEntry(1, uint64(f), 1)
	fill := ring.FillEntry(2, uint64(b), 0, 4, 7, 0)
	signal := ring.SignalEntry(3, uint64(f), 2)
	for _, e := range []*ring.Entry{&wait, &fill, &signal} {
		require.NoError(t, client.Push(e, nil, nil))
	}
	require.NoError(t, client.Flush())
	require.NoError(t, client.Close())
	require.Equal(t, before+3, openDescriptors(t))

	require.NoError(t, s.SignalFence(f, 1))
	state, err := s.WaitFence(context.Background(), f, 2)
	require.NoError(t, err)
	require.EqualValues(t, 2, state.Reached, "what was published is done")
	require.NoError(t, s.CloseQueue(info.Handle))
	require.Equal(t, before, openDescriptors(t))
	require.Equal(t, held, r.descriptors())
}

// sloppyPool frees its buffers and complains.
type sloppyPool struct{ ddf.DMAPool }

func (p sloppyPool) Alloc(ctx context.Context, bytes uint64) (ddf.DMABuffer, error) {
	b, err := p.DMAPool.Alloc(ctx, bytes)
	return sloppyBuffer{b}, err
}

type sloppyBuffer struct{ ddf.DMABuffer }

func (b sloppyBuffer) Free() error {
	return errors.Join(b.DMABuffer.Free(), gpuerr.New(gpuerr.Busy, "no record of it"))
}

// Only memory that could not be unmapped costs the device; see
// TestUnmapFailureLosesTheDevice.
func TestFreeThatOnlyComplains(t *testing.T) {
	r := newMemRig(t)
	r.dev.cfg.DMA = sloppyPool{r.dev.cfg.DMA}
	s := r.open("alice")
	require.NoError(t, s.DestroyBuffer(buf(t, s, 2*heap.CarveBytes)))
	buf(t, s, 2*heap.CarveBytes)
	buf(t, s, 4096)
	require.NoError(t, s.Close())
	r.reclaimed()
	require.NoError(t, r.dev.Err())
	require.Zero(t, r.descriptors())
	r.idle(s)
}

// Descriptors on their way to a client when its session ends are charged no longer than that.
func TestLentWhenTheSessionEnds(t *testing.T) {
	r := newMemRig(t)
	s := r.open("alice")
	held := r.descriptors()
	var returned []func()
	for range 3 {
		back, err := s.Lend(2)
		require.NoError(t, err)
		returned = append(returned, back)
	}
	require.Equal(t, held+6, r.descriptors())
	returned[0]()
	returned[0]()
	require.Equal(t, held+4, r.descriptors())
	require.NoError(t, s.Close())
	r.idle(s)
	require.Zero(t, r.descriptors())
	for _, back := range returned {
		back() // its answer was not sent before
	}
	require.Zero(t, r.descriptors())
	require.NoError(t, r.dev.Check())
	_, err := s.Lend(1)
	require.Error(t, err)
}
