package main

import (
	"context"
	"encoding/hex"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/driver/session/sessiontest"
)

// guestProgram builds the guest of examples/zing.
func guestProgram(t *testing.T) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("there is no C compiler; CI must install gcc")
		}
		t.Skip("SKIPPED: there is no C compiler (apt-get install gcc): the guest in C is not built")
	}
	binary := filepath.Join(t.TempDir(), "guest")
	out, err := exec.Command(cc, "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O1", "-Wall", "-Wextra", "-Werror", "-o", binary, "../../examples/zing/guest.c", "../../examples/zing/cloak.c").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return binary
}

// TestZingInC: a guest in C runs, is recorded, and runs again without a service.
func TestZingInC(t *testing.T) {
	guest, dir := guestProgram(t), t.TempDir()
	svc := sessiontest.Start(t, sessiontest.Options{})
	env := map[string]string{"CAPGPU_SOCKET": svc.Socket}
	transcript := filepath.Join(dir, "calls.jsonl")
	i := gpuctl(context.Background(), env, false, "zing", "--record", transcript, guest)
	require.Zero(t, i.exit, "%s", &i.err)
	require.Equal(t, "0.5 1.5 2.5 3.5\n", i.out.String())
	require.Equal(t, "guest: done\n", i.err.String())

	nobody := map[string]string{"CAPGPU_SOCKET": filepath.Join(dir, "nobody")}
	i = gpuctl(context.Background(), nobody, false, "zing", "--replay", transcript, guest)
	require.Zero(t, i.exit, "%s", &i.err)
	require.Equal(t, "0.5 1.5 2.5 3.5\n", i.out.String())

	text, err := os.ReadFile(transcript)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(transcript, text[:len(text)/2], 0o600))
	i = gpuctl(context.Background(), nobody, false, "zing", "--replay", transcript, guest)
	require.Equal(t, exitFailed, i.exit)
	require.Contains(t, i.err.String(), "of the transcript")

	// No device, so the guest ends with its own status.
	i = gpuctl(context.Background(), env, false, "zing", "--device", "7", guest)
	require.Equal(t, 1, i.exit)
	require.Contains(t, i.err.String(), "refused: t_accel_no_device")
	i = gpuctl(context.Background(), nobody, false, "zing", guest)
	require.Equal(t, exitUnreachable, i.exit)
}

func TestZingUsage(t *testing.T) {
	dir := t.TempDir()
	list := filepath.Join(dir, "list.json")
	require.NoError(t, os.WriteFile(list, []byte(`{"module": {}}`), 0o600))
	for _, args := range [][]string{
		{}, {"--listen", "x", "guest"}, {"--listen", "x", "--record", "y"}, {"--record", "x", "--replay", "y", "guest"},
		{"--module", list, "guest"}, {"--module", "id=/dev/null", "guest"}, {"--device", "-1", "guest"},
	} {
		i := gpuctl(context.Background(), nil, false, append([]string{"zing"}, args...)...)
		require.Equal(t, exitUsage, i.exit, "%q: %s", args, &i.err)
	}
}

// TestZingListen: each connection is a guest of its own.
func TestZingListen(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	dir := t.TempDir()
	module, err := os.ReadFile("../../examples/vecadd/vecadd.spv")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "m.spv"), module, 0o600))
	list := filepath.Join(dir, "list.json")
	require.NoError(t, os.WriteFile(list, []byte(`{"modules": {"mine": "`+filepath.Join(dir, "m.spv")+`"}}`), 0o600))

	socket := filepath.Join(dir, "zing.sock")
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan *invocation, 1)
	go func() {
		ended <- gpuctl(ctx, map[string]string{"CAPGPU_SOCKET": svc.Socket}, false, "zing", "--listen", socket, "--module", list, "--no-ext")
	}()
	var conns []net.Conn
	for range 2 {
		var conn net.Conn
		require.Eventually(t, func() bool { conn, err = net.Dial("unix", socket); return err == nil }, 10*time.Second, time.Millisecond)
		conns = append(conns, conn)
	}
	info, err := os.Stat(socket)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	for _, conn := range conns { // CAPS_LIST: accel alone
		_, err := conn.Write([]byte("ZCL1\x01\x00\x01\x00\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
		require.NoError(t, err)
		answer := make([]byte, 56)
		_, err = io.ReadFull(conn, answer)
		require.NoError(t, err)
		require.Equal(t, "5a434c3101000100070000000000000024000000"+"01000000"+"01000000"+"05000000616363656c"+"0700000064656661756c74"+"0d000000"+"00000000", hex.EncodeToString(answer))
	}
	conns[0].Close()
	stop()
	i := <-ended
	require.Zero(t, i.exit, "%s", &i.err)
	conns[1].Close()
}
