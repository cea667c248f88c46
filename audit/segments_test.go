package audit

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/gpuerr"
)

func requireDamageIn(t *testing.T, path, file, reason string) {
	t.Helper()
	for n, look := range []func() error{
		func() error { _, err := Verify(path); return err },
		func() error { _, err := Read(path, 0, 1<<20); return err },
		func() error { _, err := Open(path, small); return err },
	} {
		err := look()
		var damage *Damage
		require.True(t, errors.As(err, &damage), "%d: %v", n, err)
		require.Equal(t, file, damage.File, "%v", err)
		require.ErrorContains(t, err, reason)
		require.ErrorIs(t, err, gpuerr.IO)
	}
}

// TestChangedBytesInEachSegmentAreFound flips bytes all over every segment, all of
// those of its header and its end among them.
func TestChangedBytesInEachSegmentAreFound(t *testing.T) {
	path := rotatedLog(t)
	for _, name := range names(t, path) {
		file := filepath.Join(filepath.Dir(path), name)
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		for i := 0; i < len(b); i++ {
			if i > 250 && i < len(b)-40 && i%97 != 0 {
				continue
			}
			b[i] ^= 0x40
			require.NoError(t, os.WriteFile(file, b, 0o600))
			_, err := Verify(path)
			var damage *Damage
			require.True(t, errors.As(err, &damage), "byte %d of %s: %v", i, name, err)
			require.Equal(t, name, damage.File, "byte %d", i)
			require.LessOrEqual(t, damage.Off, int64(i)+int64(len(header)))
			b[i] ^= 0x40
		}
		require.NoError(t, os.WriteFile(file, b, 0o600))
	}
	headOf(t, path)
}

func TestMovedAndMissingSegmentsAreFound(t *testing.T) {
	good := rotatedLog(t)
	full := func(path string, n uint64) string { return segmentPath(path, n) }
	read := func(path string) []byte {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		return b
	}
	write := func(path string, b []byte) { require.NoError(t, os.WriteFile(path, b, 0o600)) }
	for _, c := range []struct {
		name         string
		do           func(path string)
		file, reason string
	}{
		{"middle taken out", func(p string) { _ = os.Remove(full(p, 2)) }, "audit.log.000002", "this segment is missing"},
		{"last full one taken out", func(p string) { _ = os.Remove(full(p, 4)) }, "audit.log.000004", "this segment is missing"},
		{"two exchanged", func(p string) {
			two, three := read(full(p, 2)), read(full(p, 3))
			write(full(p, 2), three)
			write(full(p, 3), two)
		}, "audit.log.000002", "by its header it is segment 3"},
		{"end cut off at a record", func(p string) {
			b := read(full(p, 3))
			offs := segmentFrames(t, b)
			write(full(p, 3), b[:offs[len(offs)-2]])
		}, "audit.log.000003", "the rest was cut off"},
		{"end cut off in a record", func(p string) {
			b := read(full(p, 3))
			write(full(p, 3), b[:len(b)-5])
		}, "audit.log.000003", "the rest of the file was cut off"},
		{"emptied", func(p string) { write(full(p, 1), nil) }, "audit.log.000001", "cut off"},
		{"only half a header", func(p string) { write(full(p, 2), read(full(p, 2))[:50]) }, "audit.log.000002", "its header is cut off"},
		{"current cut to half a header", func(p string) { write(p, read(p)[:50]) }, "audit.log", "its header is cut off"},
		{"current emptied", func(p string) { write(p, nil) }, "audit.log", "cut off"},
		{"current is an old one", func(p string) { write(p, read(full(p, 2))) }, "audit.log", "it is segment 2, but a file for segment 4"},
		{"current is a copy of the last", func(p string) { write(p, read(full(p, 4))) }, "audit.log", "it is segment 4, but a file for segment 4"},
		{"one too many", func(p string) { write(full(p, 7), read(p)) }, "audit.log", "a file for segment 7"},
		{"something else", func(p string) { write(full(p, 3), []byte("something else entirely, long enough")) }, "audit.log.000003", "does not begin"},
		{"made anew", func(p string) { // all hashes of the segment are right
			at, b := parseSegment(t, read(full(p, 2)))
			for range 7 {
				b = appendFrame(b, &at, ddf.AuditRecord{Index: at.size, Kind: "kind", Detail: "nothing to see"})
			}
			write(full(p, 2), b)
		}, "audit.log.000003", "does not follow from the segment before it"},
		{"begun anew", func(p string) { // a header that its checksum fits
			at, _ := parseSegment(t, read(full(p, 3)))
			before := position{segment: 2, size: at.first, tree: at.tree, chain: [32]byte{1}}
			_, b := before.follow()
			write(full(p, 3), b)
		}, "audit.log.000003", "does not follow from the segment before it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := copyFolder(t, good)
			c.do(path)
			requireDamageIn(t, path, c.file, c.reason)
		})
	}

	path := copyFolder(t, good)
	require.NoError(t, os.Remove(path))
	_, err := Open(path, small)
	require.ErrorContains(t, err, "audit.log is not what was written: the file is missing")
}

func parseSegment(t *testing.T, b []byte) (position, []byte) {
	t.Helper()
	s := newScanner(strings.NewReader(string(b)))
	require.NoError(t, s.begin())
	return s.at, b[:s.at.off:s.at.off]
}

func segmentFrames(t *testing.T, b []byte) (offs []int64) {
	t.Helper()
	s := newScanner(strings.NewReader(string(b)))
	require.NoError(t, s.begin())
	for offs = append(offs, s.at.off); ; offs = append(offs, s.at.off) {
		if _, err := s.next(); err != nil {
			return offs
		}
	}
}

// TestRotateKeep: the oldest segments go, a record names them, and the rest can still be
// verified, with all heads over it.
func TestRotateKeep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	two := Options{MaxBytes: MinMaxBytes, Keep: 2}
	l := openLog(t, path, two)
	var heads []ddf.AuditHead
	for range 60 {
		fill(t, l, 1)
		head, err := l.Head()
		require.NoError(t, err)
		heads = append(heads, head)
	}
	snapped, err := l.Snapshot(0, 1000)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.Len(t, names(t, path), 3)

	report, err := Verify(path, heads...)
	require.NoError(t, err)
	require.Equal(t, 3, report.Segments)
	require.False(t, report.Unnoted)
	require.Equal(t, heads[59], report.Head)
	require.NotEmpty(t, report.Unchecked)
	for i, h := range report.Unchecked {
		require.Equal(t, heads[i], h)
		require.Less(t, h.Size, report.First)
	}
	require.GreaterOrEqual(t, heads[len(report.Unchecked)].Size, report.First)

	records, err := Read(path, 0, 1000)
	require.NoError(t, err)
	require.Equal(t, report.First, records[0].Index)
	require.Equal(t, records, snapped)
	require.EqualValues(t, report.Head.Size-report.First, len(records))
	var notes []string
	for _, r := range records {
		if r.Kind == removedKind {
			notes = append(notes, r.Detail)
		}
	}
	require.Len(t, notes, 3, "each of three segments began with one")
	require.Regexp(t, `^segments=(\d+)-\d+ records=\d+-\d+ head=\d+:[0-9a-f]{64}$`, notes[2])

	wrong := heads[len(heads)-3]
	wrong.Root[0] ^= 1
	_, err = Verify(path, wrong)
	require.ErrorContains(t, err, "is not the one that was kept")

	// Fewer are kept from now on; opening again removes and notes no more.
	for range 2 {
		l = openLog(t, path, Options{MaxBytes: MinMaxBytes, Keep: 1})
		require.NoError(t, l.Close())
		require.Len(t, names(t, path), 2)
		less, err := Verify(path, heads[59])
		require.NoError(t, err)
		require.Equal(t, heads[59].Size+1, less.Head.Size)
		require.False(t, less.Unnoted)
	}

	// All are kept from now on; that some were removed is noted in an older segment.
	l = openLog(t, path, small)
	fill(t, l, 20)
	require.NoError(t, l.Close())
	more, err := Verify(path, heads[59])
	require.NoError(t, err)
	require.False(t, more.Unnoted)
	require.Greater(t, more.Segments, 3)

	// Another process takes away the oldest.
	oldest := names(t, path)[1]
	require.NoError(t, os.Remove(filepath.Join(filepath.Dir(path), oldest)))
	report, err = Verify(path, heads...)
	require.NoError(t, err)
	require.True(t, report.Unnoted)
	openLog(t, path, two)
}

// TestRotateRemovalIsTriedAgain: a segment that cannot be removed stays, and goes later.
func TestRotateRemovalIsTriedAgain(t *testing.T) {
	var failing atomic.Bool
	failing.Store(true)
	path, l := tracedLog(t, Options{MaxBytes: MinMaxBytes, Keep: 1}, func(string) {}, func(step string) error {
		if failing.Load() && step == "remove" {
			return syscall.EPERM
		}
		return nil
	})
	fill(t, l, 40)
	require.Greater(t, len(names(t, path)), 5)
	report, err := Verify(path)
	require.NoError(t, err)
	require.Zero(t, report.First)
	failing.Store(false)
	fill(t, l, 1)
	require.NoError(t, l.Close())
	require.Len(t, names(t, path), 2)
	report, err = Verify(path)
	require.NoError(t, err)
	require.False(t, report.Unnoted)
}

// TestReadersWhileSegmentsGo reads a log that is rotated and shortened all the time.
func TestReadersWhileSegmentsGo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := openLog(t, path, Options{MaxBytes: MinMaxBytes, Keep: 1})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 400 {
			if _, err := l.Append("kind", "", strings.Repeat("z", 900)); err != nil {
				t.Error(err)
			}
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		if _, err := Verify(path); err != nil {
			require.ErrorIs(t, err, gpuerr.Busy)
		}
		_, err := l.Snapshot(0, 1000)
		require.NoError(t, err)
		_, err = Open(path, small)
		require.ErrorIs(t, err, gpuerr.Busy)
	}
}
