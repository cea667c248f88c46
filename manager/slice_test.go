package manager

import (
	"os/exec"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/internal/shm"
)

// A driver has a short slice, and is otherwise scheduled as any process; the process that
// starts it keeps its own slice.
func TestWithShortSlice(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := unix.SchedGetAttr(0, 0)
	require.NoError(t, err)
	if before.Runtime == 0 {
		t.Skip("this kernel tells no slice of an ordinary thread")
	}
	for _, yes := range []bool{false, true} {
		cmd := exec.Command("sleep", "60")
		require.NoError(t, withShortSlice(yes, cmd.Start))
		got, err := unix.SchedGetAttr(cmd.Process.Pid, 0)
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
		require.NoError(t, err)
		want := *before
		if yes {
			want.Runtime = uint64(driverSlice)
			require.Less(t, want.Runtime, before.Runtime)
		}
		require.Equal(t, want, *got)
		after, err := unix.SchedGetAttr(0, 0)
		require.NoError(t, err)
		require.Equal(t, before, after)
	}
}

// Memory that is punched in pieces is punched to its end.
func TestPunchOut(t *testing.T) {
	bytes := 2*pagesPiece + shm.PageBytes
	m, err := shm.Create("test", bytes)
	require.NoError(t, err)
	defer m.Close()
	require.NoError(t, m.Back(0, bytes))
	require.EqualValues(t, bytes/512, blocks(t, m))
	require.NoError(t, punchOut(m, bytes))
	require.Zero(t, blocks(t, m))
}

// However long each yield takes, memory that no process blocks does not count as blocked.
func TestPunchYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bytes = 400 * pagesPiece
		m, err := shm.Create("test", bytes)
		require.NoError(t, err)
		defer m.Close()
		start, gave := time.Now(), 0
		require.NoError(t, punchPieces(m, bytes, func() {
			gave++
			time.Sleep(3 * time.Millisecond)
		}))
		require.Less(t, time.Since(start), punchGrace/2)
		require.Greater(t, gave, 50)
	})
}

func blocks(t *testing.T, m *shm.Memory) int64 {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(m.FD(), &st))
	return st.Blocks
}
