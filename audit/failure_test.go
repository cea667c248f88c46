package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
)

// flakyFile fails on demand.
type flakyFile struct {
	*os.File
	writeErr, syncErr, truncateErr atomic.Pointer[error]
	syncs                          atomic.Int64
	hold                           chan struct{} // when not nil, Sync waits for one value
}

func (f *flakyFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.writeErr.Load(); err != nil {
		n, _ := f.File.WriteAt(b[:len(b)/2], off) // as a full disk does
		return n, *err
	}
	return f.File.WriteAt(b, off)
}

func (f *flakyFile) Sync() error {
	f.syncs.Add(1)
	if f.hold != nil {
		<-f.hold
	}
	if err := f.syncErr.Load(); err != nil {
		return *err
	}
	return f.File.Sync()
}

func (f *flakyFile) Truncate(n int64) error {
	if err := f.truncateErr.Load(); err != nil {
		return *err
	}
	return f.File.Truncate(n)
}

func flakyLog(t *testing.T) (*flakyFile, *Log) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.log")
	f, err := openCurrent(path)
	require.NoError(t, err)
	r, err := newReader(path, f)
	require.NoError(t, err)
	flaky := &flakyFile{File: f}
	l, err := open(flaky, dirStore{path}, r, Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return flaky, l
}

// TestDiskFull: a write, sync or even truncation that fails leaves a log that verifies,
// returns errors to the callers, and continues with a record of the lost ones.
func TestDiskFull(t *testing.T) {
	full := error(syscall.ENOSPC)
	for name, fail := range map[string]func(*flakyFile, *error){
		"write":              func(f *flakyFile, err *error) { f.writeErr.Store(err) },
		"sync":               func(f *flakyFile, err *error) { f.syncErr.Store(err) },
		"write and truncate": func(f *flakyFile, err *error) { f.writeErr.Store(err); f.truncateErr.Store(err) },
	} {
		t.Run(name, func(t *testing.T) {
			f, l := flakyLog(t)
			_, err := l.Append("before", "", "")
			require.NoError(t, err)
			kept, err := l.Head()
			require.NoError(t, err)

			fail(f, &full)
			_, err = l.Append("lost", "", strings.Repeat("x", 500))
			require.NoError(t, err, "the first one is not waited for")
			require.ErrorIs(t, l.Sync(), gpuerr.IO)
			for range 3 {
				_, err = l.Append("refused", "", "")
				require.ErrorIs(t, err, gpuerr.IO)
			}
			require.ErrorIs(t, l.Sync(), gpuerr.IO)
			records, err := l.Snapshot(0, 10)
			require.NoError(t, err)
			require.Equal(t, []string{"0 before||"}, texts(records))

			fail(f, nil)
			index, err := l.Append("after", "", "")
			require.NoError(t, err)
			require.EqualValues(t, 2, index)
			require.NoError(t, l.Sync())
			report, err := Verify(f.Name(), kept)
			require.NoError(t, err)
			require.Zero(t, report.TornBytes)
			records, err = l.Snapshot(0, 10)
			require.NoError(t, err)
			require.Equal(t, []string{"0 before||", "1 audit.lost||4 records before this one could not be written", "2 after||"}, texts(records))
		})
	}
}

// TestFailureWhileMoreIsQueued: records queued behind a write that fails are chained to it,
// and so are given up with it, together with their places to seek to.
func TestFailureWhileMoreIsQueued(t *testing.T) {
	f, l := flakyLog(t)
	for range markEvery - 3 {
		_, err := l.Append("kind", "", "before")
		require.NoError(t, err)
	}
	require.NoError(t, l.Sync())
	before := f.syncs.Load()
	f.hold = make(chan struct{})
	_, err := l.Append("kind", "", "in the failing write")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return f.syncs.Load() == before+1 }, 10*time.Second, time.Millisecond)
	for range 10 { // over the place of a mark
		_, err := l.Append("kind", "", "queued behind it")
		require.NoError(t, err)
	}
	bad := error(syscall.EIO)
	f.syncErr.Store(&bad)
	f.hold <- struct{}{}
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.failure != nil
	}, 10*time.Second, time.Millisecond)
	f.syncErr.Store(nil)
	close(f.hold)
	for i := range 2 * markEvery {
		_, err := l.Append("kind", "", fmt.Sprint("after ", i))
		require.NoError(t, err)
	}
	head, err := l.Head()
	require.NoError(t, err)
	require.EqualValues(t, 3*markEvery-3+1, head.Size)
	_, err = Verify(f.Name(), head)
	require.NoError(t, err)
	for from := uint64(0); from < head.Size; from += 50 {
		records, err := l.Snapshot(from, 50)
		require.NoError(t, err)
		read, err := Read(f.Name(), from, 50)
		require.NoError(t, err)
		require.Equal(t, read, records)
	}
	records, err := l.Snapshot(markEvery-3, 2)
	require.NoError(t, err)
	require.Equal(t, []string{"253 audit.lost||11 records before this one could not be written", "254 kind||after 0"}, texts(records))
}
