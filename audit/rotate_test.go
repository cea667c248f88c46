package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/gpuerr"
)

var small = Options{MaxBytes: MinMaxBytes}

// fill appends n records; some seven of them fit in a small segment.
func fill(t testing.TB, l *Log, n int) {
	t.Helper()
	for i := range n {
		_, err := l.Append("kind", "tenant", fmt.Sprint(i, " ", strings.Repeat("x", 1000)))
		require.NoError(t, err)
	}
	require.NoError(t, l.Sync())
}

// rotatedLog is a closed log of four full segments and the current one.
func rotatedLog(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.log")
	l := openLog(t, path, small)
	fill(t, l, 30)
	require.NoError(t, l.Close())
	require.Equal(t, []string{"audit.log", "audit.log.000001", "audit.log.000002", "audit.log.000003", "audit.log.000004"}, names(t, path))
	return path
}

func names(t testing.TB, path string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func headOf(t testing.TB, path string) ddf.AuditHead {
	t.Helper()
	report, err := Verify(path)
	require.NoError(t, err)
	return report.Head
}

// TestRotateUnderConcurrentAppends: no append fails, every record is there once
// and in the order of its index, and readers find a whole log at any time.
func TestRotateUnderConcurrentAppends(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := openLog(t, path, Options{MaxBytes: MinMaxBytes, GroupFsync: time.Millisecond})
	const writers, each = 4, 150
	var wg, readers sync.WaitGroup
	var stop atomic.Bool
	var mu sync.Mutex
	byIndex := map[uint64]string{}
	for w := range writers {
		wg.Go(func() {
			last := uint64(0)
			for i := range each {
				detail := fmt.Sprint(w, " ", i, strings.Repeat(".", i*6))
				index, err := l.Append("kind", "", detail)
				if err == nil && i%20 == 0 {
					err = l.Sync()
				}
				if err != nil || i > 0 && index <= last {
					t.Error(index, last, err)
				}
				last = index
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
				records, err = l.Snapshot(head.Size-min(head.Size, 20), 20)
				if err == nil && len(records) < int(min(head.Size, 20)) {
					t.Errorf("%d records before %d", len(records), head.Size)
				}
			}
			if err != nil && !errors.Is(err, gpuerr.Busy) {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	stop.Store(true)
	readers.Wait()
	head, err := l.Head()
	require.NoError(t, err)
	records, err := Read(path, 0, 1<<20)
	require.NoError(t, err)
	require.Equal(t, writers*each, len(records))
	plain := start() // the tree knows nothing of segments
	for i, r := range records {
		require.EqualValues(t, i, r.Index)
		require.Equal(t, byIndex[r.Index], r.Detail)
		plain.advance(appendPayload(nil, r))
	}
	require.Equal(t, plain.head(), head)
	report, err := Verify(path, head)
	require.NoError(t, err)
	require.Greater(t, report.Segments, 20)
	for _, name := range names(t, path) {
		st, err := os.Stat(filepath.Join(filepath.Dir(path), name))
		require.NoError(t, err)
		require.LessOrEqual(t, st.Size(), int64(MinMaxBytes), name)
	}
}

// TestRotateReadAcrossSegments compares every range of Read and Snapshot.
func TestRotateReadAcrossSegments(t *testing.T) {
	path := rotatedLog(t)
	head := headOf(t, path)
	all, err := Read(path, 0, 100)
	require.NoError(t, err)
	require.Len(t, all, 30)
	l := openLog(t, path, small)
	reopened, err := l.Head()
	require.NoError(t, err)
	require.Equal(t, head, reopened)
	for from := range 31 {
		for n := 1; n < 32; n += 3 {
			want := all[from:min(from+n, 30)]
			read, err := Read(path, uint64(from), n)
			require.NoError(t, err)
			snapped, err := l.Snapshot(uint64(from), n)
			require.NoError(t, err)
			if len(want) == 0 {
				want = nil
			}
			require.Equal(t, [2][]ddf.AuditRecord{want, want}, [2][]ddf.AuditRecord{read, snapped}, "%d from %d", n, from)
		}
	}
}

// tracedStore does something before and after each step, and fails some.
type tracedStore struct {
	dirStore
	at   func(string)
	fail func(string) error
}

func (s tracedStore) step(name string, do func() error) error {
	s.at("before " + name)
	err := s.fail(name)
	if err == nil {
		err = do()
	}
	s.at("after " + name)
	return err
}

func (s tracedStore) create() (f file, err error) {
	err = s.step("create", func() (err error) {
		f, err = s.dirStore.create()
		return err
	})
	if err == nil {
		f = tracedFile{f, s}
	}
	return f, err
}

func (s tracedStore) link(n uint64) error {
	return s.step("link", func() error { return s.dirStore.link(n) })
}
func (s tracedStore) sync() error    { return s.step("sync folder", s.dirStore.sync) }
func (s tracedStore) replace() error { return s.step("replace", s.dirStore.replace) }
func (s tracedStore) remove(n uint64) error {
	return s.step("remove", func() error { return s.dirStore.remove(n) })
}

type tracedFile struct {
	file
	s tracedStore
}

func (f tracedFile) WriteAt(b []byte, off int64) (n int, err error) {
	if half, _ := f.file.WriteAt(b[:len(b)/2], off); half > 0 {
		f.s.at("in the middle of write")
	}
	err = f.s.step("write", func() error {
		n, err = f.file.WriteAt(b, off)
		return err
	})
	return n, err
}

func (f tracedFile) Sync() error { return f.s.step("sync file", f.file.Sync) }

func tracedLog(t *testing.T, o Options, at func(string), fail func(string) error) (string, *Log) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.log")
	f, err := openCurrent(path)
	require.NoError(t, err)
	r, err := newReader(path, f)
	require.NoError(t, err)
	s := tracedStore{dirStore{path}, at, fail}
	l, err := open(tracedFile{f, s}, s, r, o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return path, l
}

// copyFolder copies the files that a crash now would leave, hard links included.
func copyFolder(t testing.TB, path string) string {
	t.Helper()
	to := t.TempDir()
	var copied []string
	for _, name := range names(t, path) {
		from, dst := filepath.Join(filepath.Dir(path), name), filepath.Join(to, name)
		linked := false
		for _, other := range copied {
			if !linked && sameFile(from, filepath.Join(filepath.Dir(path), other)) {
				require.NoError(t, os.Link(filepath.Join(to, other), dst))
				linked = true
			}
		}
		if !linked {
			b, err := os.ReadFile(from)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(dst, b, 0o600))
		}
		copied = append(copied, name)
	}
	return filepath.Join(to, filepath.Base(path))
}

// TestRotateCrashAtEachStep copies the folder before, after and in the middle of every step
// of several rotations. Each copy verifies, opens, holds all durable records, and continues.
func TestRotateCrashAtEachStep(t *testing.T) {
	type crash struct{ when, path string }
	var crashes []crash
	var path string
	var tracing atomic.Bool
	path, l := tracedLog(t, Options{MaxBytes: MinMaxBytes, Keep: 2}, func(when string) {
		if tracing.Load() {
			crashes = append(crashes, crash{when, copyFolder(t, path)}) // in runCommit alone
		}
	}, func(string) error { return nil })
	fill(t, l, 16)
	durable, err := l.Head()
	require.NoError(t, err)
	tracing.Store(true)
	fill(t, l, 20)
	require.NoError(t, l.Close())

	seen := map[string]bool{}
	for _, c := range crashes {
		seen[strings.TrimPrefix(strings.TrimPrefix(c.when, "before "), "after ")] = true
		before, err := Verify(c.path, durable)
		require.NoError(t, err, c.when)
		require.False(t, before.Unnoted, c.when)
		l, err := Open(c.path, Options{MaxBytes: MinMaxBytes, Keep: 2})
		require.NoError(t, err, c.when)
		require.NoError(t, l.Close())
		opened, err := Verify(c.path, durable, before.Head)
		require.NoError(t, err, c.when)
		require.LessOrEqual(t, opened.Segments, 3, c.when)
		require.Len(t, names(t, c.path), opened.Segments, "%s: what is left of the rotation is gone", c.when)
		l, err = Open(c.path, Options{MaxBytes: MinMaxBytes, Keep: 2})
		require.NoError(t, err, c.when)
		fill(t, l, 9)
		require.NoError(t, l.Close())
		after, err := Verify(c.path, durable, before.Head)
		require.NoError(t, err, c.when)
		require.False(t, after.Unnoted, c.when)
		require.GreaterOrEqual(t, after.Head.Size, before.Head.Size+9, c.when)
		require.Equal(t, 3, after.Segments, c.when)
		require.Len(t, names(t, c.path), 3, c.when)
		records, err := Read(c.path, 0, 1000)
		require.NoError(t, err)
		removed := map[uint64]bool{}
		for _, r := range records {
			if n, ok := removedUpTo(r); ok {
				require.False(t, removed[n], "%s: segment %d is noted twice", c.when, n)
				removed[n] = true
			}
		}
	}
	for _, step := range []string{"create", "in the middle of write", "write", "sync file", "link", "sync folder", "replace", "remove"} {
		require.True(t, seen[step], step)
	}
}

func requireSnapshotsAsRead(t *testing.T, l *Log, path string) {
	t.Helper()
	read, err := Read(path, 0, 1000)
	require.NoError(t, err)
	for from := range read {
		snapped, err := l.Snapshot(uint64(from), 3)
		require.NoError(t, err)
		require.Equal(t, read[from:min(from+3, len(read))], snapped)
	}
}

// TestRotateOrderOfSteps: no step of a rotation is done before the steps that it relies on
// are on disk.
func TestRotateOrderOfSteps(t *testing.T) {
	var steps []string
	_, l := tracedLog(t, Options{MaxBytes: MinMaxBytes, Keep: 1}, func(when string) {
		if step, ok := strings.CutPrefix(when, "before "); ok {
			steps = append(steps, step)
		}
	}, func(string) error { return nil })
	fill(t, l, 14)
	require.NoError(t, l.Sync())
	l.mu.Lock()
	number := l.durable.segment
	l.mu.Unlock()
	require.EqualValues(t, 2, number)
	steps = nil // runCommit waits: there is nothing to write
	_, err := l.Append("kind", "", strings.Repeat("x", 1000))
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.Equal(t, []string{
		"sync file", "create", "write", "sync file", "link", "sync folder", "replace", "sync folder",
		"write", "sync file", "remove", "sync folder",
	}, steps)
}

// TestRotateFails lets each step fail as on a full disk: appends are refused, records on disk
// stay, and when there is room the log continues.
func TestRotateFails(t *testing.T) {
	for _, step := range []string{"create", "write", "sync file", "link", "sync folder", "replace"} {
		for after := range 4 { // in which of the places where the step is done
			t.Run(fmt.Sprint(step, " ", after), func(t *testing.T) {
				var failing atomic.Bool
				var count atomic.Int64
				path, l := tracedLog(t, small, func(string) {}, func(name string) error {
					if failing.Load() && name == step && count.Add(1) > int64(after) {
						return syscall.ENOSPC
					}
					return nil
				})
				fill(t, l, 5)
				kept, err := l.Head()
				require.NoError(t, err)
				failing.Store(true)
				refused := 0
				for range 30 {
					if _, err := l.Append("kind", "", strings.Repeat("y", 1000)); err != nil {
						require.ErrorIs(t, err, gpuerr.IO)
						refused++
					}
					_ = l.Sync()
					_, err = Verify(path, kept)
					require.NoError(t, err)
				}
				require.Greater(t, refused, 3)
				failing.Store(false)
				_, err = l.Append("kind", "", "may still fit into the old segment")
				require.NoError(t, err)
				fill(t, l, 30)
				requireSnapshotsAsRead(t, l, path)
				require.NoError(t, l.Close())
				report, err := Verify(path, kept)
				require.NoError(t, err)
				require.NotContains(t, names(t, path), "audit.log.next")
				require.Len(t, names(t, path), report.Segments)
				records, err := Read(path, 0, 1000)
				require.NoError(t, err)
				lost := 0
				for _, r := range records {
					if r.Kind == "audit.lost" {
						var n int
						_, err := fmt.Sscanf(r.Detail, "%d records", &n)
						require.NoError(t, err)
						lost += n - 1 // the record of the loss is there
					}
				}
				require.Equal(t, 66, len(records)+lost, "every record is there or said to be lost")
			})
		}
	}
}
