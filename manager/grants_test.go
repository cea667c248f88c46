package manager

import (
	"context"
	"math"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3/rpc"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/ddf"
	"capgpu/ddf/ddfrpc"
	"capgpu/ddf/ddftest"
	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/iommu"
	"capgpu/schema"
)

// A driver's grants keep the promises of package ddf.
func TestGrantsConform(t *testing.T) {
	ddftest.RunHarness(t, func(t *testing.T) ddftest.Harness {
		g := grant(t, grantTestLimits())
		link := dialGrants(t, g)
		doorbells := map[int][]uint64{}
		for _, w := range fakeWindows {
			doorbells[int(w.Bar)] = w.Doorbells
		}
		return ddftest.Harness{
			Grants: link.GrantSet(),
			Raise: func(i int) {
				v, err := g.fake.vector(i)
				require.NoError(t, err)
				require.NoError(t, v.raise())
			},
			Poke: func(bar int, off uint64, v uint32) { require.NoError(t, g.fake.Store32(bar, off, v)) },
			Mapped: func(iova ddf.IOVA, bytes uint64) bool {
				_, ok := g.fake.domain.Reach(iova, bytes, iommu.ReadWrite)
				return ok
			},
			Doorbells: doorbells,
			Revoke: func() {
				g.stop(t)
				<-link.Done()
			},
		}
	})
}

func TestReadOnlyWindow(t *testing.T) {
	f, err := newFakeFunction([]ddf.WindowSpec{{Bar: 2, Bytes: 4096, Doorbells: []uint64{8}}}, 0)
	require.NoError(t, err)
	defer f.Close()
	w := grantedWindows(f)[0]
	require.ErrorIs(t, w.write(4, 1), gpuerr.Denied)
	require.ErrorIs(t, w.ring(4, 1), gpuerr.Denied)
	require.NoError(t, w.ring(8, 7))
	v, err := w.read(8)
	require.NoError(t, err)
	require.EqualValues(t, 7, v)
	fd, off, err := f.WindowFD(0)
	require.NoError(t, err)
	require.Zero(t, off)
	defer unix.Close(fd)
	_, err = unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.ErrorIs(t, err, unix.EACCES, "the driver could write to a read-only window")

	how, err := f.Begin()
	require.NoError(t, err)
	require.Equal(t, "fake", how)
	v, err = w.read(8)
	require.NoError(t, err)
	require.Zero(t, v, "the next driver finds nothing of the last one")
	require.NoError(t, f.Close())
	_, err = w.read(8)
	require.ErrorIs(t, err, gpuerr.Closed)
	_, err = f.Begin()
	require.ErrorIs(t, err, gpuerr.Closed)
}

// Windows and vectors are recorded, once, before the driver has them.
func TestWindowsAndVectorsAreRecorded(t *testing.T) {
	g := grant(t, grantTestLimits())
	dialGrants(t, g)
	var told []string
	records, err := g.log.Snapshot(0, 100)
	require.NoError(t, err)
	for _, r := range records {
		require.Empty(t, r.Tenant, "by the manager")
		told = append(told, r.Kind+" "+r.Detail)
	}
	require.Equal(t, []string{
		"mmio.grant mock0 epoch=1 bar=0 bytes=4096 writable=true doorbells=1",
		"interrupt.grant mock0 epoch=1 vector=0",
		"interrupt.grant mock0 epoch=1 vector=1",
	}, told)
	for range 2 { // recorded already
		require.NoError(t, g.recordGrant(&g.vectors[0].granted, "interrupt.grant", "vector=0"))
	}
	head, err := g.log.Head()
	require.NoError(t, err)
	require.EqualValues(t, 3, head.Size)

	unwritable := grant(t, grantTestLimits())
	unwritable.log.setRefuse(unix.ENOSPC)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = ddfrpc.Dial(ctx, unwritable.theirs)
	require.ErrorIs(t, err, gpuerr.IO)
	require.ErrorContains(t, err, "nothing is granted")
	unwritable.log.setRefuse(nil)
	require.NoError(t, unwritable.recordGrant(&unwritable.windows[0].granted, "mmio.grant", "bar=0"))
	head, err = unwritable.log.Head()
	require.NoError(t, err)
	require.EqualValues(t, 1, head.Size, "a record that failed is made later")
}

// Nothing is granted without a record.
func TestNoGrantWithoutRecord(t *testing.T) {
	g := grant(t, grantTestLimits())
	before := g.usage()
	g.log.setRefuse(unix.ENOSPC)
	_, err := g.alloc(4096)
	require.ErrorIs(t, err, gpuerr.IO)
	require.ErrorContains(t, err, "nothing is granted")
	require.Equal(t, before, g.usage())
	g.log.setRefuse(nil)
	_, err = g.alloc(4096)
	require.NoError(t, err)
}

func TestGrantBounds(t *testing.T) {
	g := grant(t, grantTestLimits())
	set := dialGrants(t, g).GrantSet()
	for range 512 {
		b, err := set.DMA.Alloc(context.Background(), 1)
		require.NoError(t, err)
		defer b.Free()
	}
	_, err := set.DMA.Alloc(context.Background(), 1)
	var refusal *gpuerr.Error
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, "iovaEntries", refusal.Resource)

	_, err = g.alloc(math.MaxUint64)
	require.ErrorIs(t, err, gpuerr.Quota)

	// The share of a driver that floods the log stops it, and nothing else does.
	detail := string(make([]byte, 1000))
	for err = error(nil); err == nil; {
		err = set.Audit.Append("flood", detail)
	}
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, "auditBytes", refusal.Resource)
	head, err := g.log.Head()
	require.NoError(t, err)
	require.Less(t, head.Size, uint64(2048))
}

// A driver can read its own records, and sees only that the others exist.
func TestAuditSnapshotHidesOthers(t *testing.T) {
	g := grant(t, grantTestLimits())
	set := dialGrants(t, g).GrantSet()
	_, err := g.log.Append("session.attach", "somebody", "secret")
	require.NoError(t, err)
	require.NoError(t, set.Audit.Append("mine", "of the driver"))
	records, err := set.Audit.Snapshot(0, 1000)
	require.NoError(t, err)
	require.Len(t, records, 5, "of which three are the grants of windows and vectors")
	for _, r := range records[:4] {
		require.Equal(t, "other", r.Kind)
		require.Empty(t, r.Tenant+r.Detail)
	}
	require.Equal(t, "mine", records[4].Kind)
	require.Equal(t, "@mock0", records[4].Tenant, "what a driver says is marked as what it says")
}

// A driver that closes its link leaves nothing charged.
func TestGrantLinkDies(t *testing.T) {
	g := grant(t, grantTestLimits())
	link := dialGrants(t, g)
	b, err := link.GrantSet().DMA.Alloc(context.Background(), 1<<20)
	require.NoError(t, err)
	require.NoError(t, link.Close())
	<-g.served
	g.stop(t) // checks the books
	require.NoError(t, b.Free())
}

// Memory that the IOMMU does not unmap is not freed. The driver is told, and its epoch ends.
func TestFreeThatCannotUnmap(t *testing.T) {
	g := grant(t, grantTestLimits())
	link := dialGrants(t, g)
	pool := link.GrantSet().DMA
	before, err := pool.Alloc(context.Background(), 4096)
	require.NoError(t, err)
	b, err := pool.Alloc(context.Background(), 8192)
	require.NoError(t, err)
	b.Bytes()[0] = 7
	g.fake.domain.Fail(func(op iommu.Op) error {
		if op.Kind == iommu.OpUnmap && op.Bytes == 8192 {
			return gpuerr.New(gpuerr.IO, "unmapped 4096 bytes of 8192")
		}
		return nil
	})
	require.NoError(t, before.Free())
	for range 2 {
		require.ErrorIs(t, b.Free(), gpuerr.IO)
	}
	require.EqualValues(t, 7, b.Bytes()[0])
	require.EqualValues(t, 8192, pool.Usage().UsedBytes)
	cause := <-g.failure.cause
	require.ErrorAs(t, cause, new(*wedgedError))
	require.ErrorContains(t, cause, "unmapped 4096 bytes of 8192")
	_, err = pool.Alloc(context.Background(), 4096)
	require.ErrorIs(t, err, gpuerr.IO, "nothing is mapped any more either")
	require.EqualValues(t, 8192, pool.Usage().UsedBytes, "what could not be mapped costs nothing")
	g.stop(t)
	<-link.Done()
	require.NoError(t, b.Free(), "the driver's own mapping")
}

// Memory that could not be mapped is freed; if the domain was lost meanwhile, the memory is
// kept.
func TestAllocThatCannotMap(t *testing.T) {
	g := grant(t, grantTestLimits())
	g.fake.domain.Fail(func(op iommu.Op) error { return unix.ENOMEM })
	_, err := g.alloc(4096)
	require.ErrorIs(t, err, gpuerr.IO)
	require.ErrorContains(t, err, "map DMA memory for the device")
	require.Zero(t, g.usage().UsedBytes)
	g.fake.domain.Fail(nil)
	d, err := g.alloc(4096)
	require.NoError(t, err)
	require.NoError(t, g.free(d))
}

// Memory that a driver drops without a Free is freed by the driver's next request, and not
// before: a dying driver drops everything, and its device may still be running.
func TestDroppedMemory(t *testing.T) {
	g := grant(t, grantTestLimits())
	d, err := g.alloc(4096)
	require.NoError(t, err)
	g.drop(d)
	require.Len(t, g.fake.domain.Mappings(), 1)
	pool := dialGrants(t, g).GrantSet().DMA
	require.Zero(t, pool.Usage().UsedBytes)
	require.Empty(t, g.fake.domain.Mappings())
	g.drop(d) // freed meanwhile
	b, err := pool.Alloc(context.Background(), 4096)
	require.NoError(t, err)
	require.NoError(t, b.Free())
}

// A window's descriptor, on real hardware that of the whole device, is handed out once: code
// that takes over a driver later cannot get another one.
func TestWindowIsMappedOnce(t *testing.T) {
	g := grant(t, grantTestLimits())
	conn := rpc.NewConn(rpcguard.NewClientTransport(g.theirs), nil)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	grants := schema.DriverGrants(conn.Bootstrap(ctx))
	defer grants.Release()
	for i := range 3 {
		// Requested anew each time: the limit is on the window, not on the capability.
		f, release := grants.Mmio(ctx, nil)
		defer release()
		res, err := f.Struct()
		require.NoError(t, err)
		fm, releaseMap := res.Mmio().Map(ctx, nil)
		defer releaseMap()
		m, err := fm.Struct()
		if i == 0 {
			require.NoError(t, err)
			require.EqualValues(t, 4096, m.Bytes())
			continue
		}
		require.ErrorIs(t, rpcguard.FromException(err), gpuerr.Denied)
		fr, releaseRead := res.Mmio().Read32(ctx, nil)
		defer releaseRead()
		_, err = fr.Struct()
		require.NoError(t, err, "calls go on")
	}
}
