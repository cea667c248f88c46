package manager_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gate/gatetest"
)

func kill(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, unix.Kill(pid, unix.SIGKILL))
}

// children returns the processes of this test, zombies included.
func children(t *testing.T) (pids []int) {
	t.Helper()
	// A dead process is reaped a moment after its death is published.
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if pids = childrenNow(t); !slices.ContainsFunc(pids, isDead) || time.Now().After(deadline) {
			return pids
		}
	}
}

// busyChildren returns the children except gates without a client.
func busyChildren(t *testing.T) []int {
	t.Helper()
	return slices.DeleteFunc(children(t), func(pid int) bool { return isGate(pid) && !gatetest.HasClient(pid) })
}

// noDrivers waits until no children are left except ready gates.
func noDrivers(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return len(busyChildren(t)) == 0 }, patience, time.Millisecond)
}

// gates returns the gates that have clients.
func gates(t *testing.T) []int {
	t.Helper()
	return slices.DeleteFunc(children(t), func(pid int) bool { return !isGate(pid) || !gatetest.HasClient(pid) })
}

func isGate(pid int) bool {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && filepath.Base(exe) == "gpu-gate"
}

// isDead reports whether a process has ended; a zombie has.
func isDead(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" Z"))
}

func childrenNow(t *testing.T) (pids []int) {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	require.NoError(t, err)
	for _, path := range tasks {
		list, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // a thread that has just ended
		}
		require.NoError(t, err)
		for _, f := range strings.Fields(string(list)) {
			pid, err := strconv.Atoi(f)
			require.NoError(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	rest := string(stat[strings.LastIndexByte(string(stat), ')')+1:])
	return !strings.HasPrefix(strings.TrimSpace(rest), "Z")
}

func itoa(pid int) string { return strconv.Itoa(pid) }
