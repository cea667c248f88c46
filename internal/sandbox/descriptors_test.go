package sandbox

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// withoutDescriptors calls f while this process can open nothing.
func withoutDescriptors(t *testing.T, f func()) {
	t.Helper()
	var before unix.Rlimit
	require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &before))
	file, err := os.Open(os.DevNull)
	require.NoError(t, err)
	lowest := uint64(file.Fd()) // of those that are free
	require.NoError(t, file.Close())
	require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: lowest, Max: before.Max}, nil))
	defer func() { require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, &before, nil)) }()
	_, err = os.Open(os.DevNull)
	require.ErrorIs(t, err, unix.EMFILE)
	f()
}

// A cell leaves nothing behind when no descriptor is free: a cell that is refused, one
// without a process, and one with a process.
func TestCloseWithoutDescriptors(t *testing.T) {
	j := newJailer(t)
	if j.groups == nil {
		t.Skip("NOT TESTED: there are no cgroups")
	}
	empty, full := newCell(t, j, Driver, Limits{}), newCell(t, j, Driver, Limits{})
	sleeper(t, full, "none")
	withoutDescriptors(t, func() {
		_, err := j.Cell("test", Driver, Limits{})
		require.ErrorIs(t, err, unix.EMFILE)
		for _, c := range []*Cell{empty, full} {
			require.NoError(t, c.Close())
			require.NoDirExists(t, c.group.path)
		}
	})
	left, err := os.ReadDir(j.groups.cells)
	require.NoError(t, err)
	for _, entry := range left {
		require.False(t, entry.IsDir(), "%s is left", entry.Name())
	}
}
