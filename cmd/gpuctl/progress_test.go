package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/driver/session/sessiontest"
)

func TestProgress(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	dir := t.TempDir()
	out := filepath.Join(dir, "c.bin")
	args := []string{"--socket", svc.Socket, "run", "vecadd_f32", "--random", "4194304", "--out", out}
	quiet := gpuctl(context.Background(), nil, false, args...)
	require.Equal(t, 0, quiet.exit, &quiet.err)
	require.Empty(t, quiet.err.String(), "no terminal, no --progress: silence")
	i := gpuctl(context.Background(), nil, false, append(args, "--progress")...)
	require.Equal(t, 0, i.exit, &i.err)
	require.Contains(t, i.err.String(), "generating a   50%  16.0 MiB of 32.0 MiB\n")
	require.Contains(t, i.err.String(), "generating b  100%  32.0 MiB of 32.0 MiB\n")
	require.Contains(t, i.err.String(), "saving "+out+"  100%  16.0 MiB of 16.0 MiB\n")
	st, err := os.Stat(out)
	require.NoError(t, err)
	require.Equal(t, int64(16<<20), st.Size())
}

func TestProgressOnATerminal(t *testing.T) {
	var w bytes.Buffer
	clock := time.Unix(0, 0)
	p := &progress{w: &w, on: true, term: true, now: func() time.Time { return clock }}
	p.start()
	p.bytes("loading a", 1<<20, 4<<20)
	require.Empty(t, w.String(), "short runs stay silent")
	clock = clock.Add(time.Second)
	p.bytes("loading a", 2<<20, 4<<20)
	require.Equal(t, "\r\x1b[Kloading a   50%  2.0 MiB of 4.0 MiB", w.String())
	p.bytes("loading a", 3<<20, 4<<20)
	clock = clock.Add(time.Second)
	p.elapsed("computing x", 1500*time.Millisecond)
	p.clear()
	p.clear()
	require.Equal(t, "\r\x1b[Kloading a   50%  2.0 MiB of 4.0 MiB\r\x1b[Kcomputing x  1.5 s\r\x1b[K", w.String())
}
