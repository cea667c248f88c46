package main

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/driver/session/sessiontest"
)

const iocpuRequests = `{"msg_type": "MemoryWrite", "correlation_id": "c", "request_id": "1", "target_device": "sip:0", "dst_sip": 0, "dst_cube": 0, "dst_pe": 0, "dst_pa": 0, "nbytes": 4, "src_kind": "host_buffer_ref", "host_buffer_ref": "data"}
{"msg_type": "MemoryRead", "correlation_id": "c", "request_id": "2", "target_device": "sip:0", "src_sip": 0, "src_cube": 0, "src_pe": 0, "src_pa": 0, "nbytes": 4}
{"msg_type": "MemoryWrite", "correlation_id": "c", "request_id": "3", "target_device": "sip:0", "dst_sip": 0, "dst_cube": 0, "dst_pe": 0, "dst_pa": 0, "nbytes": 4, "src_kind": "host_buffer_ref", "host_buffer_ref": "away"}
`

const iocpuTopology = "../../accel/iocpu/testdata/topology.json"

func TestIOCPU(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data"), []byte("abcd"), 0o600))
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "away")))
	var out, errs bytes.Buffer
	a := &app{in: strings.NewReader(iocpuRequests), out: &out, err: &errs, getenv: func(string) string { return svc.Socket }, now: time.Now}
	require.Zero(t, a.run(context.Background(), []string{"iocpu", "--topology", iocpuTopology, "--buffers", dir}), "%s", &errs)
	lines := strings.Split(out.String(), "\n")
	require.Len(t, lines, 4)
	require.Contains(t, lines[0], `"ok":true`)
	require.Contains(t, lines[1], `"sha256":"88d4266fd4e6338d13b845fcf289579d209c897823b9217da3e161936f031589"`)
	require.Contains(t, lines[2], "host_buffer_ref", "a link out of the folder is none of it")

	// Each connection is a host of its own: its requests have the same names again.
	socket := filepath.Join(dir, "iocpu.sock")
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan *invocation, 1)
	go func() {
		ended <- gpuctl(ctx, map[string]string{"CAPGPU_SOCKET": svc.Socket}, false, "iocpu", "--topology", iocpuTopology, "--buffers", dir, "--listen", socket)
	}()
	for range 2 {
		var conn net.Conn
		require.Eventually(t, func() bool { c, err := net.Dial("unix", socket); conn = c; return err == nil }, 10*time.Second, time.Millisecond)
		_, err := conn.Write([]byte(iocpuRequests))
		require.NoError(t, err)
		answers := bufio.NewReader(conn)
		for _, want := range lines[:3] {
			got, err := answers.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, want+"\n", got)
		}
		conn.Close()
	}
	stop()
	i := <-ended
	require.Zero(t, i.exit, "%s", &i.err)
	require.Empty(t, i.err.String())
}

func TestIOCPURefusals(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	env := map[string]string{"CAPGPU_SOCKET": svc.Socket}
	require.Equal(t, exitUsage, gpuctl(context.Background(), env, false, "iocpu").exit)
	require.NotZero(t, gpuctl(context.Background(), env, false, "iocpu", "--topology", "/dev/null").exit)
	require.NotZero(t, gpuctl(context.Background(), env, false, "iocpu", "--topology", iocpuTopology, "--buffers", "/dev/null").exit)
	require.Equal(t, exitUnreachable, gpuctl(context.Background(), map[string]string{"CAPGPU_SOCKET": "/nowhere"}, false, "iocpu", "--topology", iocpuTopology).exit)
}
