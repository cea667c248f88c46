package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/gpuerr"
)

func openSet(t testing.TB, path string, host, owners Options) *Set {
	t.Helper()
	s, err := OpenSet(path, host, owners)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func keep(t testing.TB, s *Set, o Owner) *Log {
	t.Helper()
	l, err := s.Keep(o)
	require.NoError(t, err)
	return l
}

func say(t testing.TB, l interface {
	Append(kind, tenant, detail string) (uint64, error)
}, kind, detail string) {
	t.Helper()
	_, err := l.Append(kind, "", detail)
	require.NoError(t, err)
}

// lines returns "LOG KIND DETAIL" of all records of all logs, without a Set's own.
func lines(t testing.TB, path string) (all []string) {
	t.Helper()
	entries, err := ReadAll(path)
	require.NoError(t, err)
	for _, e := range entries {
		if e.Kind != runKind && e.Kind != beginKind {
			all = append(all, strings.TrimSpace(e.Log+" "+e.Kind+" "+e.Detail))
		}
	}
	return all
}

// A log that is full of one owner's records for ever has lost nothing of the others.
func TestOwnersPushNothingOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	bounds := Options{MaxBytes: MinMaxBytes, Keep: 2}
	s := openSet(t, path, bounds, bounds)
	say(t, s, "manager.start", "")
	a, b := keep(t, s, OfTenant("a")), keep(t, s, OfTenant("b"))
	again, err := s.Keep(OfTenant("a"))
	require.NoError(t, err)
	require.Same(t, a, again)
	say(t, b, "session.attach", "b")
	fill(t, a, 500)
	say(t, b, "session.close", "b")
	require.NoError(t, s.Close())

	var others []string
	size := 0
	for _, l := range lines(t, path) {
		if !strings.HasPrefix(l, "tenant-a.log ") {
			others = append(others, l)
		}
	}
	require.Equal(t, []string{"audit.log manager.start", "tenant-b.log session.attach b", "tenant-b.log session.close b"}, others)
	paths, err := Paths(path)
	require.NoError(t, err)
	require.Len(t, paths, 3)
	for _, p := range paths {
		_, err := Verify(p)
		require.NoError(t, err, p)
		segments, err := filepath.Glob(p + "*")
		require.NoError(t, err)
		for _, f := range segments {
			if info, err := os.Stat(f); err == nil && info.Mode().IsRegular() {
				size += int(info.Size())
			}
		}
	}
	require.Less(t, size, 5*MinMaxBytes, "three files of a, one of b and one of the host")
}

// Records of one manager come before those of the next one, and those of a removed owner are
// still there.
func TestAllLogsInOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	want := []string{}
	for run := range 3 {
		s := openSet(t, path, Options{}, Options{})
		say(t, s, "manager.start", fmt.Sprint(run))
		device := keep(t, s, OfDevice("0000:01:00.0"))
		gone := OfTenant(fmt.Sprint("t", run))
		tenant := keep(t, s, gone)
		say(t, device, "dma.map", "")
		say(t, tenant, "session.attach", "")
		say(t, s, "driver.end", "")
		require.NoError(t, s.Release(gone))
		require.NoError(t, s.Release(gone))
		_, err := tenant.Append("k", "", "")
		require.ErrorIs(t, err, gpuerr.Closed)
		say(t, s, "manager.stop", "")
		require.NoError(t, s.Close())
		_, err = s.Keep(gone)
		require.ErrorIs(t, err, gpuerr.Closed)
		want = append(want, fmt.Sprint("audit.log manager.start ", run), "device-0000:01:00.0.log dma.map",
			string(gone)+".log session.attach", "audit.log driver.end", "audit.log manager.stop")
	}
	require.Equal(t, want, lines(t, path))
	missing, err := Missing(path)
	require.NoError(t, err)
	require.Empty(t, missing)
	require.NoError(t, os.Remove(ownerPath(path, OfTenant("t1"))))
	missing, err = Missing(path)
	require.NoError(t, err)
	require.Equal(t, []string{"tenant-t1.log"}, missing)
}

// A clock that goes back, within a run or from one to the next, puts no record into another
// run, nor before an earlier record of its log; nor does a log without its beginning.
func TestPlaces(t *testing.T) {
	record := func(index uint64, at int, kind, detail string) ddf.AuditRecord {
		return ddf.AuditRecord{Index: index, Time: time.Unix(int64(at), 0), Kind: kind, Detail: detail}
	}
	runs := func(all []placed) (runs []int) {
		for i, p := range all {
			runs = append(runs, p.run)
			if i > 0 && all[i-1].run == p.run {
				require.False(t, p.at.Before(all[i-1].at))
			}
		}
		return runs
	}
	host := []ddf.AuditRecord{
		record(7, 50, "driver.end", ""), record(8, 100, "manager.start", ""), record(9, 90, "x", ""), record(10, 20, "manager.start", ""), record(11, 30, "x", ""),
	}
	starts := startsIn(host)
	require.Equal(t, []int{0, 1, 1, 2, 2}, runs(place("audit.log", host, starts, true)))
	whole := []ddf.AuditRecord{
		record(0, 40, runKind, "host=5"), record(1, 60, "x", ""), record(2, 100, runKind, "host=9"), record(3, 60, "x", ""), record(4, 20, runKind, "host=11"), record(5, 21, "x", ""),
	}
	require.Equal(t, []int{0, 0, 1, 1, 2, 2}, runs(place("tenant-a.log", whole, starts, false)))
	require.Equal(t, []int{0, 1, 1, 2, 2}, runs(place("tenant-a.log", whole[1:], starts, false)))
	require.Equal(t, []int{1, 2, 2}, runs(place("tenant-a.log", append([]ddf.AuditRecord{record(3, 120, "x", "")}, whole[4:]...), starts, false)))
	require.Equal(t, []int{2}, runs(place("tenant-a.log", []ddf.AuditRecord{record(9, 120, "x", "")}, starts, false)))
	forged := record(0, 10, runKind, "host=11")
	forged.Tenant = "@mock0"
	require.Equal(t, []int{0}, runs(place("tenant-a.log", []ddf.AuditRecord{forged}, starts, false)), "only a Set says so")
}

// A damaged log is named, and says nothing of the others.
func TestDamageOfOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	s := openSet(t, path, Options{}, Options{})
	say(t, s, "manager.start", "")
	for _, o := range []Owner{OfTenant("a"), OfTenant("b")} {
		say(t, keep(t, s, o), "first", "")
		say(t, keep(t, s, o), "second", "")
	}
	require.NoError(t, s.Close())
	spoiled := ownerPath(path, OfTenant("a"))
	text, err := os.ReadFile(spoiled)
	require.NoError(t, err)
	text[len(text)-1] ^= 1
	require.NoError(t, os.WriteFile(spoiled, text, 0o600))
	entries, err := ReadAll(path)
	require.ErrorContains(t, err, "byte")
	require.ErrorContains(t, err, "of tenant-a.log is not what was written")
	kinds := map[string]int{}
	for _, e := range entries {
		kinds[e.Log+" "+e.Kind]++
	}
	require.Equal(t, map[string]int{
		"audit.log manager.start": 1, "audit.log audit.begin": 2, "tenant-a.log audit.run": 1, "tenant-a.log first": 1,
		"tenant-b.log audit.run": 1, "tenant-b.log first": 1, "tenant-b.log second": 1,
	}, kinds)
	s = openSet(t, path, Options{}, Options{})
	_, err = s.Keep(OfTenant("a"))
	require.ErrorAs(t, err, new(*Damage))
	keep(t, s, OfTenant("b"))
}

// Only a valid name becomes a file's.
func TestOwnerForm(t *testing.T) {
	s := openSet(t, filepath.Join(t.TempDir(), "audit.log"), Options{}, Options{})
	for _, o := range []Owner{"", "x", "tenant-", "tenant-..", "tenant-a/b", "tenant-A", Owner("tenant-" + strings.Repeat("a", 65)), "other-a", OfDevice("../x")} {
		_, err := s.Keep(o)
		require.ErrorIs(t, err, gpuerr.Invalid, string(o))
	}
	keep(t, s, OfDevice("0000:01:00.0"))
	keep(t, s, OfTenant("a_b-c"))
}
