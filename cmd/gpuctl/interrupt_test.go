package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/driver/session/sessiontest"
	"capgpu/gpu"
)

func TestDriverDies(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{Config: func(c *gpu.Config) { c.DefaultDeadline, c.MaxDeadline = time.Minute, time.Minute }})
	died := make(chan struct{})
	go func() {
		defer close(died)
		awaitWork(svc)
		svc.Kill()
	}()
	i := gpuctl(context.Background(), map[string]string{"CAPGPU_SOCKET": svc.Socket}, false, "run", "spin")
	<-died
	require.Equal(t, exitUnreachable, i.exit, "%s%s", &i.out, &i.err)
}

// awaitWork returns when something runs on the device.
func awaitWork(svc *sessiontest.Service) {
	for {
		for _, tenant := range svc.Device.Status("").Tenants {
			for _, s := range tenant.Sessions {
				if s.InFlight > 0 {
					return
				}
			}
		}
		time.Sleep(time.Millisecond)
	}
}

func TestInterrupt(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{Config: func(c *gpu.Config) { c.DefaultDeadline, c.MaxDeadline = time.Minute, time.Minute }})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		awaitWork(svc)
		cancel()
	}()
	args := []string{"--socket", svc.Socket, "run", "spin"}
	i := gpuctl(ctx, nil, false, args...)
	require.Equal(t, exitInterrupted, i.exit, "%s%s", &i.out, &i.err)
	require.Contains(t, i.out.String(), "spin on mock0: cancelled")

	i = gpuctl(ctx, nil, false, "--socket", svc.Socket, "run", "vecadd_f32", "--random", "10")
	require.Equal(t, exitInterrupted, i.exit)
	require.Equal(t, "gpuctl: interrupted\n  Nothing runs any more. Start it again when you want the result.\n", i.err.String())
}

// If a session ends while its results are written, the results are lost: they are
// zeros by then, and not reported as results.
func TestSessionEndsWhileItsResultIsSaved(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	dir := t.TempDir()
	pipe := filepath.Join(dir, "out")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	ended := make(chan *invocation, 1)
	go func() {
		ended <- gpuctl(context.Background(), nil, false, "--socket", svc.Socket, "run", "copy", "--random", "1048576", "--type", "f32", "--out", pipe)
	}()

	f, err := os.Open(pipe)
	require.NoError(t, err)
	defer f.Close()
	_, err = io.ReadFull(f, make([]byte, 4096))
	require.NoError(t, err)
	require.NoError(t, svc.Device.Close(context.Background()))
	_, err = io.Copy(io.Discard, f)
	require.NoError(t, err)
	i := <-ended
	require.Equal(t, exitUnreachable, i.exit, "%s", &i.err)
	require.Empty(t, i.out.String())
}
