package gate

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/driver/session/sessiontest"
)

// TestCxxClient builds examples/cpp/client.c++ from the same schema and runs it.
func TestCxxClient(t *testing.T) {
	binary := buildCxx(t)
	service := sessiontest.Start(t, sessiontest.Options{})
	path := filepath.Join(t.TempDir(), "test.capnp.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	defer listener.Close()

	ended := make(chan error, 1)
	go func() {
		conn, err := listener.AcceptUnix()
		if err != nil {
			ended <- err
			return
		}
		tenant, err := client.Dial(context.Background(), service.Socket)
		if err != nil {
			conn.Close()
			ended <- err
			return
		}
		ended <- Serve(context.Background(), conn, tenant, Options{})
	}()

	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary, path, "100000").CombinedOutput()
	t.Logf("%s", out)
	listener.Close()
	require.NoError(t, <-ended, "the gate")
	require.NoError(t, err, "the client")
	for _, line := range []string{"vecadd_f32 of 100000", "pipelined program", "launch on a memory session", "beyond the quota", "a closed session", "the manager is still there"} {
		require.Contains(t, string(out), "ok: "+line)
	}
}

// buildCxx compiles the client. It skips the test if it cannot; with
// CAPGPU_REQUIRE_CXX=1 the test fails instead.
func buildCxx(t *testing.T) string {
	dir := t.TempDir()
	std, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "capnproto.org/go/capnp/v3").Output()
	require.NoError(t, err)
	binary := filepath.Join(dir, "client")
	steps := [][]string{
		{"capnp", "compile", "-I" + filepath.Join(strings.TrimSpace(string(std)), "std"), "--src-prefix=../schema", "-oc++:" + dir, "../schema/capos.capnp"},
		{"g++", "-std=c++17", "-O1", "-fsyntax-only", "-x", "c++", "-include", "capnp/rpc-twoparty.h", "/dev/null"},
		{"g++", "-std=c++17", "-O1", "-I" + dir, "../examples/cpp/client.c++", filepath.Join(dir, "capos.capnp.c++"), "-o", binary,
			"-lcapnp-rpc", "-lcapnp", "-lkj-async", "-lkj"},
	}

	for i, step := range steps {
		if _, err := exec.LookPath(step[0]); err != nil {
			skipCxx(t, "there is no %s: install capnproto, libcapnp-dev and g++", step[0])
		}
		out, err := exec.Command(step[0], step[1:]...).CombinedOutput()
		if err != nil && i == 1 {
			skipCxx(t, "g++ does not find capnp/rpc-twoparty.h: install libcapnp-dev\n%s", out)
		}
		require.NoError(t, err, "%s\n%s", strings.Join(step, " "), out)
	}

	return binary
}

func skipCxx(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CAPGPU_REQUIRE_CXX") == "1" {
		t.Fatalf("CAPGPU_REQUIRE_CXX=1, but "+format, args...)
	}
	t.Skipf("THE C++ CLIENT IS NOT TESTED: "+format, args...)
}
