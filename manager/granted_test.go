package manager

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/ddf/ddfrpc"
	"capgpu/internal/rpcguard"
	"capgpu/iommu"
	"capgpu/ledger"
)

// testLog is an audit log in memory. Its head commits to its records.
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

// kinds returns the kinds of all records, in order.
func (l *testLog) kinds() (kinds []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		kinds = append(kinds, r.Kind)
	}
	return kinds
}

// text formats one record.
func (l *testLog) text(i int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.records[i]
	return r.Kind + " " + r.Tenant + " " + r.Detail
}

func (l *testLog) Sync() error { return nil }

func (l *testLog) Close() error { return nil }

// granted is the manager's side of one epoch, without a process.
type granted struct {
	*grants
	fake   *fakeFunction
	gate   *rpcguard.Gate
	log    *testLog
	ledger *ledger.Ledger
	theirs *net.UnixConn

	stopOnce sync.Once
	served   chan struct{}
}

// grant serves the grants of one epoch of a fake function. They are revoked at the end of the
// test.
func grant(t *testing.T, limits ledger.Limits) *granted {
	t.Helper()
	fake, err := newFakeFunction(fakeWindows, fakeVectors)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, fake.Close()) })
	g := grantOf(t, limits, fake, iommu.NewSpace(fake.Domain().Ranges()))
	g.fake = fake
	return g
}

// logOf returns the log of either tenant.
func (g *granted) logOf(tenant string) AuditLog {
	if tenant == "alice" || tenant == "bob" {
		return g.log
	}
	return nil
}

// grantOf serves the grants of one epoch of a function that has begun.
func grantOf(t testing.TB, limits ledger.Limits, f Function, space *iommu.Space) *granted {
	t.Helper()
	g := &granted{log: &testLog{}, gate: rpcguard.NewGate(), ledger: ledger.New("test", ledger.NoLimits()), served: make(chan struct{})}
	account, err := g.ledger.Root().Child("epoch-1", limits)
	require.NoError(t, err)
	info := f.Identity()
	info.Name, info.Epoch = fakeName, 1
	g.grants, err = newGrants(grantsOf{
		info: info, function: f, space: space, account: account, audit: g.log, own: g.log,
		shares: newAuditShares(fakeName, 1<<20, g.log, g.logOf, slog.New(slog.DiscardHandler)), log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	ours, fd, err := streamPair()
	require.NoError(t, err)
	file := os.NewFile(uintptr(fd), "grant link")
	c, err := net.FileConn(file)
	file.Close()
	require.NoError(t, err)
	g.theirs = c.(*net.UnixConn)
	go func() {
		defer close(g.served)
		(&grantServer{grants: g.grants, gate: g.gate, log: slog.New(slog.DiscardHandler)}).serve(ours)
	}()
	t.Cleanup(func() { g.stop(t) })
	return g
}

// stop closes the link and revokes, as the end of a driver does.
func (g *granted) stop(t testing.TB) {
	g.stopOnce.Do(func() {
		g.gate.Revoke(errGrantsRevoked)
		<-g.served
		_, err := g.function.Quiesce()
		require.NoError(t, err)
		r := g.revoke(false, nil)
		require.NoError(t, r.err)
		if r.kept > 0 { // wanted by the test
			require.ErrorContains(t, g.ledger.Root().Zero(), "deviceMemory")
			require.NoError(t, g.salvage())
		}
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

func dialGrants(t testing.TB, g *granted) *ddfrpc.Link {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	link, err := ddfrpc.Dial(ctx, g.theirs)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, link.Close()) })
	return link
}

// raise plays the device that sends one interrupt.
func (v *fakeVector) raise() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.masked {
		v.held++
		return nil
	}
	return v.event.Signal()
}
