package main

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/gpuerr"
)

// A caller that may not be the operator, or that finds no device-manager, gets that
// error and not one of a driver.
func TestOperatorWithoutManager(t *testing.T) {
	dir := t.TempDir()
	run := func(args ...string) *invocation {
		return gpuctl(context.Background(), nil, false, append([]string{"--socket", filepath.Join(dir, "default.sock")}, args...)...)
	}
	i := run("suspend", "mock0")
	require.Equal(t, exitUnreachable, i.exit)
	require.Contains(t, i.err.String(), "there is no device-manager at "+filepath.Join(dir, "manager.admin.sock"))
	require.Contains(t, i.err.String(), "--admin")

	l, err := net.Listen("unix", filepath.Join(dir, "other.sock")) // a stream: no admin socket
	require.NoError(t, err)
	defer l.Close()
	i = run("upgrade", "mock0", "--admin", filepath.Join(dir, "other.sock"))
	require.Equal(t, exitUnreachable, i.exit)
	require.Contains(t, i.err.String(), "is not the admin socket")
}

func TestSuspendedDeviceNamesItsEnd(t *testing.T) {
	a := &app{command: "gpuctl run"}
	busy := gpuerr.New(gpuerr.Busy, "device mock0 is suspended by its operator; open it again when it is resumed")
	r := a.reportOf(context.Background(), refusal(client.DeviceInfo{Name: "mock0", Suspended: true}, busy))
	require.Equal(t, exitRefused, r.exit)
	require.Contains(t, r.Hint, `"gpuctl resume mock0"`)
	r = a.reportOf(context.Background(), refusal(client.DeviceInfo{Name: "mock0"}, busy))
	require.NotContains(t, r.Hint, "resume")
}

func TestVersionFlag(t *testing.T) {
	for _, line := range [][]string{{"--version"}, {"run", "--version"}} {
		i := gpuctl(context.Background(), nil, false, line...)
		require.Zero(t, i.exit)
		require.Regexp(t, `^gpuctl \S+ \(go1\.\S+ linux/\w+\)\n$`, i.out.String())
	}
}
