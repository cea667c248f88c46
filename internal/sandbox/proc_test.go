package sandbox

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Threads are looked at in a /proc of our own, so that /proc has none of their names.
func TestALookLeavesNoNames(t *testing.T) {
	path, end := newProc()
	defer end()
	if path == "/proc" {
		caps, err := effective("self")
		require.NoError(t, err)
		require.Zero(t, caps&(1<<unix.CAP_SYS_ADMIN), "who may mount has a /proc of its own")
		t.Skip("SKIPPED: without CAP_SYS_ADMIN there is no /proc of our own")
	}
	var host, own unix.Stat_t
	require.NoError(t, unix.Stat("/proc/self", &host))
	require.NoError(t, unix.Stat(fmt.Sprintf("%s/%d", path, os.Getpid()), &own))
	require.NotEqual(t, host.Dev, own.Dev)
	read, err := readStatus(os.Getpid())
	require.NoError(t, err)
	require.EqualValues(t, os.Geteuid(), read.uid)
}
