package mapped

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

func write(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

func TestOpen(t *testing.T) {
	want := bytes.Repeat([]byte("abc"), 5000)
	f, err := Open(write(t, want))
	require.NoError(t, err)
	require.Equal(t, want, f.Bytes())
	got := make([]byte, 6)
	require.NoError(t, Copy(got, f.Bytes()[3:9]))
	require.Equal(t, "abcabc", string(got))
	require.ErrorIs(t, Copy(got, f.Bytes()[:7]), gpuerr.Invalid)
	require.NoError(t, f.Close())
	require.NoError(t, f.Close())
}

// A pipe without a writer, a folder, an empty file and a missing file are errors at
// once.
func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	for _, path := range []string{pipe, dir, write(t, nil)} {
		_, err := Open(path)
		require.ErrorIs(t, err, gpuerr.Invalid, path)
	}
	_, err := Open(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, gpuerr.IO)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = ReadFile(pipe, 10)
	require.ErrorIs(t, err, gpuerr.Invalid)
}

func TestReadFile(t *testing.T) {
	path := write(t, []byte("0123456789"))
	got, err := ReadFile(path, 10)
	require.NoError(t, err)
	require.Equal(t, "0123456789", string(got))
	_, err = ReadFile(path, 9)
	require.ErrorIs(t, err, gpuerr.Invalid)
	_, err = ReadFile(path+"x", 9)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A file that is truncated under a mapping is an error of the read, and the process
// continues.
func TestTruncated(t *testing.T) {
	page := os.Getpagesize()
	path := write(t, bytes.Repeat([]byte{7}, 3*page))
	f, err := Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, os.Truncate(path, int64(page)))

	dst := make([]byte, 3*page)
	require.ErrorIs(t, Copy(dst, f.Bytes()), gpuerr.IO)
	require.NoError(t, Copy(dst[:page], f.Bytes()[:page]))
	sum := 0
	require.ErrorIs(t, Guard(func() error { sum += int(f.Bytes()[2*page]); return nil }), gpuerr.IO)
	require.Zero(t, sum)
	require.ErrorIs(t, Guard(func() error { return gpuerr.Busy }), gpuerr.Busy)
	require.Panics(t, func() { _ = Guard(func() error { panic("a bug") }) })
}
