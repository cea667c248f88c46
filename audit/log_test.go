package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"capgpu/ddf"
	"capgpu/gpuerr"
)

func openLog(t testing.TB, path string, o Options) *Log {
	t.Helper()
	l, err := Open(path, o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// smallLog writes a log of a few records and returns its path and bytes.
func smallLog(t testing.TB) (string, []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.log")
	l := openLog(t, path, Options{})
	for _, r := range [][3]string{
		{"grant", "", "mock0 bar 0"}, {"session.open", "a", "id 1"}, {"buffer.create", "a", "4096"},
		{"odd", "b\x00", "line\nline\x1b[2J\xff\"\\"}, {"session.close", "a", ""},
	} {
		_, err := l.Append(r[0], r[1], r[2])
		require.NoError(t, err)
	}
	require.NoError(t, l.Close())
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return path, b
}

func put(t testing.TB, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.log")
	require.NoError(t, os.WriteFile(path, b, 0o600))
	return path
}

func texts(records []ddf.AuditRecord) (lines []string) {
	for _, r := range records {
		lines = append(lines, fmt.Sprintf("%d %s|%s|%s", r.Index, r.Kind, r.Tenant, r.Detail))
	}
	return lines
}

func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	before := time.Now()
	l := openLog(t, path, Options{})
	for i := range 700 { // over several marks
		index, err := l.Append("kind", "tenant", fmt.Sprint("detail ", i))
		require.NoError(t, err)
		require.EqualValues(t, i, index)
	}
	for _, from := range []uint64{0, 255, 256, 300, 698} {
		records, err := l.Snapshot(from, 3)
		require.NoError(t, err)
		require.Len(t, records, int(min(3, 700-from)))
		for i, r := range records {
			require.Equal(t, from+uint64(i), r.Index)
			require.Equal(t, fmt.Sprint("detail ", r.Index), r.Detail)
			require.WithinRange(t, r.Time, before.Add(-time.Second), time.Now())
		}
		read, err := Read(path, from, 3)
		require.NoError(t, err)
		require.Equal(t, records, read)
	}
	records, err := l.Snapshot(700, 1)
	require.NoError(t, err)
	require.Empty(t, records)
	_, err = l.Snapshot(0, 0)
	require.ErrorIs(t, err, gpuerr.Invalid)
	_, err = Read(path, 0, -1)
	require.ErrorIs(t, err, gpuerr.Invalid)

	head, err := l.Head()
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.NoError(t, l.Close())
	_, err = l.Append("late", "", "")
	require.ErrorIs(t, err, gpuerr.Closed)
	_, err = l.Snapshot(0, 1)
	require.ErrorIs(t, err, gpuerr.Closed)

	again := openLog(t, path, Options{})
	reopened, err := again.Head()
	require.NoError(t, err)
	require.Equal(t, head, reopened)
	index, err := again.Append("after", "", "")
	require.NoError(t, err)
	require.EqualValues(t, 700, index)
	require.NoError(t, again.Close())
	report, err := Verify(path, head)
	require.NoError(t, err)
	require.EqualValues(t, 701, report.Head.Size)
}

// TestTreeIsRFC6962 compares every root with tlog's, which keeps all hashes.
func TestTreeIsRFC6962(t *testing.T) {
	var hashes []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		var out []tlog.Hash
		for _, i := range indexes {
			out = append(out, hashes[i])
		}
		return out, nil
	})
	var edge tree
	for n := range 130 {
		leaf := []byte(fmt.Sprint("leaf ", n))
		more, err := tlog.StoredHashes(int64(n), leaf, reader)
		require.NoError(t, err)
		hashes = append(hashes, more...)
		edge.add(uint64(n), leaf)
		want, err := tlog.TreeHash(int64(n+1), reader)
		require.NoError(t, err)
		require.EqualValues(t, want, edge.root())
	}
}

func TestBoundsAndText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := openLog(t, path, Options{})
	for _, r := range [][3]string{
		{"", "", ""}, {strings.Repeat("k", MaxKindBytes+1), "", ""},
		{"k", strings.Repeat("t", MaxTenantBytes+1), ""}, {"k", "", strings.Repeat("d", MaxDetailBytes+1)},
	} {
		_, err := l.Append(r[0], r[1], r[2])
		require.ErrorIs(t, err, gpuerr.Invalid)
	}
	kind, tenant, detail := strings.Repeat("k", MaxKindBytes), strings.Repeat("\x00", MaxTenantBytes), strings.Repeat("\n", MaxDetailBytes)
	_, err := l.Append(kind, tenant, detail)
	require.NoError(t, err)
	records, err := l.Snapshot(0, 10)
	require.NoError(t, err)
	require.Equal(t, []string{"0 " + kind + "|" + tenant + "|" + detail}, texts(records))

	at := time.Unix(0, 5e9).UTC()
	require.Equal(t, `7 1970-01-01T00:00:05Z grant bar 0`, Format(ddf.AuditRecord{Index: 7, Time: at, Kind: "grant", Detail: "bar 0"}))
	require.Equal(t, `7 1970-01-01T00:00:05Z k tenant="\x1b[2J" "a\n8 \xff"`, Format(ddf.AuditRecord{Index: 7, Time: at, Kind: "k", Tenant: "\x1b[2J", Detail: "a\n8 \xff"}))
}

func TestBusy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := openLog(t, path, Options{})
	_, err := Open(path, Options{})
	require.ErrorIs(t, err, gpuerr.Busy)
	require.NoError(t, l.Close())
	openLog(t, path, Options{})
}

// TestConcurrent appends from many goroutines while others read, sync and verify:
// every record is there once, in the order of its index.
func TestConcurrent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := openLog(t, path, Options{GroupFsync: time.Millisecond})
	const writers, each = 4, 300
	var wg, readers sync.WaitGroup
	var stop atomic.Bool
	var mu sync.Mutex
	byIndex := map[uint64]string{}
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				detail := fmt.Sprint(w, " ", i)
				index, err := l.Append("kind", "", detail)
				if err == nil && i%50 == 0 {
					err = l.Sync()
				}
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				byIndex[index] = detail
				mu.Unlock()
			}
		})
	}
	readers.Go(func() {
		for !stop.Load() {
			head, err := l.Head()
			if err == nil {
				_, err = Verify(path, head)
			}
			if err == nil && head.Size > 0 {
				var records []ddf.AuditRecord
				records, err = l.Snapshot(head.Size-1, 1)
				if len(records) != 1 {
					t.Errorf("no record %d", head.Size-1)
				}
			}
			if err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	stop.Store(true)
	readers.Wait()
	require.Len(t, byIndex, writers*each)
	require.NoError(t, l.Sync())
	records, err := Read(path, 0, 1<<20)
	require.NoError(t, err)
	require.Equal(t, writers*each, len(records))
	for _, r := range records {
		require.Equal(t, byIndex[r.Index], r.Detail)
	}
}

func TestOneSyncForManyAppends(t *testing.T) {
	f, l := flakyLog(t)
	f.hold = make(chan struct{})
	before := f.syncs.Load()
	_, err := l.Append("first", "", "")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return f.syncs.Load() == before+1 }, 10*time.Second, time.Millisecond)
	for range 1000 { // while the first sync is under way
		_, err := l.Append("kind", "", "detail")
		require.NoError(t, err)
	}
	close(f.hold)
	require.NoError(t, l.Sync())
	require.Equal(t, before+2, f.syncs.Load())
}

// TestPendingIsBounded: when the disk stands still, Append waits in the end.
func TestPendingIsBounded(t *testing.T) {
	f, l := flakyLog(t)
	f.hold = make(chan struct{})
	done := make(chan struct{})
	var appended atomic.Int64
	const total = 5000
	go func() {
		defer close(done)
		for range total {
			if _, err := l.Append("kind", "", strings.Repeat("d", MaxDetailBytes)); err != nil {
				t.Error(err)
			}
			appended.Add(1)
		}
	}()
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.pendingBytes > maxPendingBytes
	}, 10*time.Second, time.Millisecond)
	require.Less(t, appended.Load(), int64(total))
	l.mu.Lock()
	require.LessOrEqual(t, l.pendingBytes, maxPendingBytes+maxFrameBytes)
	l.mu.Unlock()
	close(f.hold)
	<-done
	head, err := l.Head()
	require.NoError(t, err)
	require.EqualValues(t, total, head.Size)
}

func TestOpenErrors(t *testing.T) {
	_, err := Open(filepath.Join(t.TempDir(), "no", "folder"), Options{})
	require.ErrorIs(t, err, gpuerr.IO)
	_, err = Verify(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, gpuerr.IO)
	_, err = Read(filepath.Join(t.TempDir(), "none"), 0, 1)
	require.ErrorIs(t, err, gpuerr.IO)
	var damage *Damage
	_, err = Open(put(t, []byte("something else entirely")), Options{})
	require.True(t, errors.As(err, &damage))
	require.ErrorIs(t, err, gpuerr.IO)
}

// BenchmarkAppend is a burst of records, the last one waiting for the disk.
func BenchmarkAppend(b *testing.B) {
	l := openLog(b, filepath.Join(b.TempDir(), "audit.log"), Options{})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Append("session.open", "tenant a", "id 1 facet full"); err != nil {
			b.Fatal(err)
		}
	}
	if err := l.Sync(); err != nil {
		b.Fatal(err)
	}
}
