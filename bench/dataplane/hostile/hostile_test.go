package hostile

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/bench/dataplane/service"
)

// A command has all CPUs, its caller keeps its own afterwards, and no thread ends:
// peers that a thread has started would end with it.
func TestOutput(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, after unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &all))
	threads, err := filepath.Glob("/proc/self/task/*")
	require.NoError(t, err)
	require.NoError(t, service.OnCPU(0, func() error {
		out, err := Output(exec.Command("nproc"))
		require.NoError(t, err)
		n, err := strconv.Atoi(strings.TrimSpace(string(out)))
		require.NoError(t, err)
		require.Equal(t, all.Count(), n)
		require.NoError(t, unix.SchedGetaffinity(0, &after))
		require.Equal(t, 1, after.Count())
		_, err = Output(exec.Command("false"))
		require.Error(t, err)
		return nil
	}))

	for _, path := range threads {
		_, err := os.Stat(path)
		require.NoError(t, err)
	}
}
