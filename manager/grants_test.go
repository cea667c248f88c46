package manager

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"log/slog"
	"math"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/ddf"
	"capgpu/ddf/ddfrpc"
	"capgpu/ddf/ddftest"
	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/ledger"
)

// testLog is an audit log in memory, whose head commits to its records.
type testLog struct {
	mu      sync.Mutex
	records []ddf.AuditRecord
	root    [32]byte
	refuse  error
}

func (l *testLog) Append(kind, tenant, detail string) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse != nil {
		return 0, l.refuse
	}
	index := uint64(len(l.records))
	l.records = append(l.records, ddf.AuditRecord{Index: index, Time: time.Now(), Kind: kind, Tenant: tenant, Detail: detail})
	l.root = sha256.Sum256(binary.LittleEndian.AppendUint64(l.root[:], index))
	return index, nil
}

func (l *testLog) Snapshot(from uint64, max int) ([]ddf.AuditRecord, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from = min(from, uint64(len(l.records)))
	to := min(uint64(len(l.records)), from+uint64(max))
	return append([]ddf.AuditRecord(nil), l.records[from:to]...), nil
}

func (l *testLog) Head() (ddf.AuditHead, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return ddf.AuditHead{Size: uint64(len(l.records)), Root: l.root}, nil
}

func (l *testLog) setRefuse(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse = err
}

func (l *testLog) Sync() error  { return nil }
func (l *testLog) Close() error { return nil }

// granted is the manager's side of one epoch, without a process.
type granted struct {
	*grants
	gate   *rpcguard.Gate
	log    *testLog
	ledger *ledger.Ledger
	theirs *net.UnixConn

	stopOnce sync.Once
	served   chan struct{}
}

// grant serves the grants of one epoch; they are revoked with the test.
func grant(t *testing.T, limits ledger.Limits) *granted {
	t.Helper()
	g := &granted{log: &testLog{}, gate: rpcguard.NewGate(), ledger: ledger.New("test", ledger.NoLimits()), served: make(chan struct{})}
	account, err := g.ledger.Root().Child("epoch-1", limits)
	require.NoError(t, err)
	info := ddf.DeviceInfo{Name: deviceName, VendorID: fakeVendor, DeviceID: fakeDevice, Epoch: 1, Fake: true}
	g.grants, err = newGrants(info, account, g.log, newAuditShares(1<<20, []*Tenant{{Name: "alice"}, {Name: "bob"}}), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	ours, fd, err := streamPair()
	require.NoError(t, err)
	f := os.NewFile(uintptr(fd), "grant link")
	c, err := net.FileConn(f)
	f.Close()
	require.NoError(t, err)
	g.theirs = c.(*net.UnixConn)
	go func() {
		defer close(g.served)
		(&grantServer{grants: g.grants, gate: g.gate, log: slog.New(slog.DiscardHandler)}).serve(ours)
	}()
	t.Cleanup(func() { g.stop(t) })
	return g
}

// stop takes the link down and revokes, as the end of a driver does.
func (g *granted) stop(t *testing.T) {
	g.stopOnce.Do(func() {
		g.gate.Revoke(errGrantsRevoked)
		<-g.served
		_, err := g.revoke(false)
		require.NoError(t, err)
		require.NoError(t, g.ledger.Root().Zero())
		require.NoError(t, g.ledger.Check())
	})
}

func grantTestLimits() ledger.Limits {
	l := ledger.NoLimits()
	l[ledger.DeviceMemory] = 16 << 20
	l[ledger.IOVAEntries] = 512
	return l
}

func dialGrants(t *testing.T, g *granted) *ddfrpc.Link {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	link, err := ddfrpc.Dial(ctx, g.theirs)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, link.Close()) })
	return link
}

// What a driver holds is what package ddf promises.
func TestGrantsConform(t *testing.T) {
	ddftest.RunHarness(t, func(t *testing.T) ddftest.Harness {
		g := grant(t, grantTestLimits())
		link := dialGrants(t, g)
		doorbells := map[int][]uint64{}
		for _, w := range fakeWindows {
			doorbells[int(w.bar)] = w.doorbells
		}
		return ddftest.Harness{
			Grants:    link.GrantSet(),
			Raise:     func(i int) { require.NoError(t, g.function.vectors[i].raise()) },
			Poke:      func(bar int, off uint64, v uint32) { storeRegister(g.function.windows[uint32(bar)].registers, off, v) },
			Mapped:    g.mapped,
			Doorbells: doorbells,
			Revoke: func() {
				g.stop(t)
				<-link.Done()
			},
		}
	})
}

func TestReadOnlyWindow(t *testing.T) {
	w, err := newWindow(windowSpec{bar: 2, bytes: 4096, doorbells: []uint64{8}})
	require.NoError(t, err)
	f := &fakeFunction{windows: map[uint32]*window{2: w}}
	defer f.Close()
	require.ErrorIs(t, w.write(4, 1), gpuerr.Denied)
	require.ErrorIs(t, w.ring(4, 1), gpuerr.Denied)
	require.NoError(t, w.ring(8, 7))
	v, err := w.read(8)
	require.NoError(t, err)
	require.EqualValues(t, 7, v)
	fd, err := w.dupFD()
	require.NoError(t, err)
	defer unix.Close(fd)
	_, err = unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.ErrorIs(t, err, unix.EACCES, "the driver could write to a read-only window")
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
		require.NoError(t, g.recordGrant(&g.function.vectors[0].granted, "interrupt.grant", "vector=0"))
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
	require.NoError(t, unwritable.recordGrant(&unwritable.function.windows[0].granted, "mmio.grant", "bar=0"))
	head, err = unwritable.log.Head()
	require.NoError(t, err)
	require.EqualValues(t, 1, head.Size, "a record that failed is made later")
}

// Nothing is granted that is not recorded.
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

	// A driver that floods the log is stopped by its share, and by nothing else.
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

// A driver sees its own records and, of the others, only that they exist.
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

// A driver that just goes away leaves nothing charged.
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
