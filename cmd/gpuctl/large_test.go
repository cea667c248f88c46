package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/client"
)

// UnmarshalJSON is the inverse of MarshalJSON.
func (n *number) UnmarshalJSON(b []byte) error {
	*n = number(strings.Trim(string(b), `"`))
	return nil
}

// startService builds and starts the whole service in developer mode, and
// returns the socket of its default tenant and the driver's process.
func startService(t *testing.T) (socket string, driver int) {
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir+"/", "capgpu/cmd/device-manager", "capgpu/cmd/gpu-mock", "capgpu/cmd/gpu-gate")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as installed; only static programs are confined
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	cmd := exec.Command(filepath.Join(dir, "device-manager"), "--dev", "--run-dir", filepath.Join(dir, "run"))
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("device-manager: %v\n%s", err, &log)
		}
	})

	socket = filepath.Join(dir, "run", "default.sock")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	require.Eventually(t, func() bool {
		c, err := client.Dial(ctx, socket)
		if err != nil {
			return false
		}
		defer c.Close()
		s, err := c.Open(ctx, 0)
		if err != nil {
			return false
		}
		require.NoError(t, s.Close(ctx))
		return true
	}, 20*time.Second, 20*time.Millisecond, "the driver does not start")

	all, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", cmd.Process.Pid))
	require.NoError(t, err)
	for _, path := range all {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, child := range strings.Fields(string(text)) {
			name, err := os.ReadFile("/proc/" + child + "/comm")
			require.NoError(t, err)
			// A standby has no registers.
			maps, err := os.ReadFile("/proc/" + child + "/maps")
			require.NoError(t, err)
			if strings.TrimSpace(string(name)) == "gpu-mock" && strings.Contains(string(maps), "capgpu-bar") {
				_, err = fmt.Sscan(child, &driver)
				require.NoError(t, err)
			}
		}
	}

	require.NotZero(t, driver, "no driver among the children")
	return socket, driver
}

// anonymousKiB is a process's own memory, without the memory of buffers, which is
// shared and charged.
func anonymousKiB(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "RssAnon:")
	var kib uint64
	_, err = fmt.Sscan(rest, &kib)
	return kib, err
}

// watchMemory returns a function that ends the watch and returns the peak of a
// process's memory.
func watchMemory(t *testing.T, pid int) (most func() uint64) {
	stop := make(chan struct{})
	var watching sync.WaitGroup
	var peak uint64
	var failure error
	watching.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			now, err := anonymousKiB(pid)
			if err != nil {
				failure = err
				return
			}
			peak = max(peak, now)
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	})

	return func() uint64 {
		close(stop)
		watching.Wait()
		require.NoError(t, failure, "the driver is gone")
		return peak
	}
}

// maxGrowthKiB bounds a driver's extra memory for 64 Mi elements, 768 MiB of
// buffers.
const maxGrowthKiB = 8 << 10

// TestLargeRun adds 64 Mi elements, through files on both sides. The driver's own
// memory stays as small as for small runs.
func TestLargeRun(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("moves 1.3 GiB")
	}

	socket, driver := startService(t)
	dir := t.TempDir()
	run := func(args ...string) result {
		t.Helper()
		i := gpuctl(context.Background(), nil, false, append([]string{"--json", "--socket", socket, "run"}, args...)...)
		require.Equal(t, 0, i.exit, "%s%s", &i.out, &i.err)
		var r result
		require.NoError(t, json.Unmarshal(i.out.Bytes(), &r))
		return r
	}

	small := watchMemory(t, driver)
	for range 10 {
		run("vecadd_f32", "--random", "4096")
	}

	before := small()

	const n = 64 << 20
	large := watchMemory(t, driver)
	a, c := filepath.Join(dir, "a.npy"), filepath.Join(dir, "c.npy")
	r := run("copy", "--random", "67108864", "--type", "f32", "--out", a)
	require.Equal(t, uint64(n), r.Elements)
	r = run("vecadd_f32", "--in", a, "--in", a, "--out", c)
	require.Equal(t, uint64(n), r.Elements)
	require.Equal(t, []uint64{n}, r.Outputs[0].Shape)
	during := large()
	after, err := anonymousKiB(driver)
	require.NoError(t, err)
	t.Logf("the driver's own memory: %d KiB in small runs, %d KiB in large ones, %d KiB after them", before, during, after)
	require.LessOrEqual(t, during, before+maxGrowthKiB, "KiB during the large runs")
	require.LessOrEqual(t, after, before+maxGrowthKiB, "KiB after the large runs")

	in, err := os.ReadFile(a)
	require.NoError(t, err)
	out, err := os.ReadFile(c)
	require.NoError(t, err)
	require.Len(t, out, len(in))

	// Doubling a float adds one to its exponent: zero stays zero.
	for i := 128; i < len(in); i += 4 * 10007 {
		var x, y uint32
		for b := 3; b >= 0; b-- {
			x, y = x<<8|uint32(in[i+b]), y<<8|uint32(out[i+b])
		}
		if x != 0 {
			x += 1 << 23
		}
		if x != y {
			t.Fatalf("element %d: %#x, want %#x", (i-128)/4, y, x)
		}
	}
}
