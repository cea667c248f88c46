package ring

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
)

// clientEnv makes the test binary a client process; its value is how many
// entries to pass. Descriptors 3, 4 and 5 are the queue.
const clientEnv = "CAPGPU_RING_TEST_CLIENT"

// runClientProcess is the other process of TestTwoProcesses.
func runClientProcess() int {
	n, err := strconv.ParseUint(os.Getenv(clientEnv), 10, 64)
	if err == nil {
		var c *Client
		if c, err = Attach(3, 4, 5); err == nil {
			err = errors.Join(load(context.Background(), c, n), c.Close())
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// clientProcess is this program again, as a client with the descriptors of a queue. The
// caller starts it.
func clientProcess(t testing.TB, s *Server, env string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(testContext(t), os.Args[0])
	cmd.Env = append(os.Environ(), env)
	cmd.Stderr = os.Stderr
	ring, sq, cq, err := s.HandOut()
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range []int{ring, sq, cq} {
		f := os.NewFile(uintptr(fd), "queue")
		t.Cleanup(func() { f.Close() })
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	return cmd
}

func startClient(t *testing.T, s *Server, entries uint64) *exec.Cmd {
	t.Helper()
	cmd := clientProcess(t, s, fmt.Sprintf("%s=%d", clientEnv, entries))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range cmd.ExtraFiles {
		f.Close()
	}
	return cmd
}

func TestTwoProcesses(t *testing.T) {
	leakcheck.Check(t)
	s := newServer(t, Config{Entries: 256, ArgBytes: 16 << 10})
	cmd := startClient(t, s, entriesToPass())
	driven := make(chan error)
	go func() { driven <- drive(context.Background(), s) }()
	if err := cmd.Wait(); err != nil {
		t.Errorf("the client process: %v", err)
	}
	s.Close(gpuerr.Closed)
	if err := <-driven; !errors.Is(err, gpuerr.Closed) && !errors.Is(err, gpuerr.Disconnected) {
		t.Errorf("drive() = %v", err)
	}
}
