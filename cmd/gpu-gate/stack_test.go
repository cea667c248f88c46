package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3/exc"
	"capnproto.org/go/capnp/v3/rpc"
	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/schema"
)

// startStack builds and starts the whole service in developer mode, and returns
// the device-manager and the Cap'n Proto socket of the default tenant.
func startStack(t *testing.T) (manager *exec.Cmd, socket string) {
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir+"/", "capgpu/cmd/device-manager", "capgpu/cmd/gpu-mock", "capgpu/cmd/gpu-gate")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as installed; only static programs are confined
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	run := filepath.Join(dir, "run")
	manager = exec.Command(filepath.Join(dir, "device-manager"), "--dev", "--run-dir", run)
	var log bytes.Buffer
	manager.Stdout, manager.Stderr = &log, &log
	require.NoError(t, manager.Start())
	t.Cleanup(func() {
		_ = manager.Process.Signal(syscall.SIGTERM)
		if err := manager.Wait(); err != nil || t.Failed() {
			t.Logf("device-manager: %v\n%s", err, log.String())
		}
	})

	socket = filepath.Join(run, "default.capnp.sock")
	require.Eventually(t, func() bool {
		_, err := os.Stat(socket)
		return err == nil
	}, 20*time.Second, 10*time.Millisecond, "no socket")

	return manager, socket
}

// childNamed finds a child process by its program's name and one of its mappings.
func childNamed(t *testing.T, parent int, name, mapped string) int {
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	for _, path := range all {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue
		}

		before, after, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(after)
		if len(fields) < 2 || fields[1] != strconv.Itoa(parent) || !strings.HasSuffix(before, "("+name) {
			continue
		}

		var pid int
		_, err = fmt.Sscan(before, &pid)
		require.NoError(t, err)
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		if err == nil && strings.Contains(string(maps), mapped) {
			return pid
		}
	}

	return 0
}

// A driver is killed while a Cap'n Proto client uses it. Everything of the client's
// session fails as disconnected, the manager capability reports the state, and the
// same connection opens the device again.
func TestDriverDiesUnderAClient(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts the whole service")
	}

	manager, path := startStack(t)
	socket, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	conn := rpc.NewConn(rpcguard.NewClientTransport(socket), nil)
	defer conn.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	m := schema.GpuDeviceManager(conn.Bootstrap(ctx))
	defer m.Release()

	open := func() (schema.GpuSession, error) {
		f, release := m.OpenDevice(ctx, nil)
		defer release()
		res, err := f.Struct()
		if err != nil {
			return schema.GpuSession{}, err
		}
		return res.Session().AddRef(), nil
	}

	var session schema.GpuSession
	require.Eventually(t, func() bool { // the driver may still be starting
		session, err = open()
		return err == nil
	}, 20*time.Second, 20*time.Millisecond)

	defer session.Release()
	made, release := session.CreateFence(ctx, nil)
	defer release()
	res, err := made.Struct()
	require.NoError(t, err)
	fence := res.Fence()
	life, release := m.Lifecycle(ctx, nil)
	defer release()

	lifecycle := life.Lifecycle()
	next := func(epoch uint64) schema.Lifecycle_next_Results {
		f, release := lifecycle.Next(ctx, func(p schema.Lifecycle_next_Params) error {
			p.SetEpoch(epoch)
			p.SetTimeoutNanos(uint64(20 * time.Second))
			return nil
		})
		t.Cleanup(release)
		st, err := f.Struct()
		require.NoError(t, err)
		return st
	}

	epoch := next(0).Epoch()

	waiting, release := fence.Wait(ctx, func(p schema.GpuFence_wait_Params) error { p.SetTimeoutNanos(uint64(time.Hour)); return nil })
	defer release()
	driver := childNamed(t, manager.Process.Pid, "gpu-mock", "capgpu-bar") // a standby has no registers
	require.NotZero(t, driver)
	require.NoError(t, syscall.Kill(driver, syscall.SIGKILL))
	_, err = waiting.Struct()
	require.True(t, exc.IsType(err, exc.Disconnected), "%v", err)
	require.ErrorIs(t, rpcguard.FromException(err), gpuerr.Disconnected)
	described, release := session.Describe(ctx, nil)
	defer release()

	_, err = described.Struct()
	require.ErrorIs(t, rpcguard.FromException(err), gpuerr.Disconnected)

	listed, release := m.ListDevices(ctx, nil)
	defer release()
	_, err = listed.Struct()
	require.NoError(t, err, "the manager capability answers")
	for st := next(epoch); st.State() != schema.DeviceState_ready || st.Epoch() == epoch; st = next(st.Epoch()) {
		require.NotEqual(t, schema.DeviceState_wedged, st.State())
	}

	again, err := open()
	require.NoError(t, err, "the successor is up")
	defer again.Release()
	buffer, release := again.CreateBuffer(ctx, func(p schema.GpuMemorySession_createBuffer_Params) error { p.SetBytes(4096); return nil })
	defer release()

	_, err = buffer.Struct()
	require.NoError(t, err)
}
