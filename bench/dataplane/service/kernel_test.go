package service

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The kernel's reports about this process are true.
func TestKernelView(t *testing.T) {
	before, err := HoldingsOf(os.Getpid())
	require.NoError(t, err)
	fd, err := unix.MemfdCreate("capgpu-test", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	defer unix.Close(fd)

	require.NoError(t, unix.Ftruncate(fd, 8192))
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(fd, &st))
	mine := func() (Holdings, Memory) {
		h, err := HoldingsOf(os.Getpid())
		require.NoError(t, err)
		require.Contains(t, h.Memories, st.Ino)
		return h, h.Memories[st.Ino]
	}

	h, m := mine()
	require.Equal(t, before.Descriptors+1, h.Descriptors)
	require.Equal(t, Memory{Name: "capgpu-test", Inode: st.Ino, Bytes: 8192}, m)
	require.False(t, h.Mapped[st.Ino])
	mem, err := unix.Mmap(fd, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	mem[5000] = 1
	h, m = mine()
	require.EqualValues(t, 4096, m.Allocated, "of the page that was touched")
	require.True(t, h.Mapped[st.Ino])
	require.NoError(t, unix.Munmap(mem))
	_, err = HoldingsOf(-1)
	require.Error(t, err)
}

func TestCPUTime(t *testing.T) {
	before, err := CPUTime(os.Getpid())
	require.NoError(t, err)
	for start := time.Now(); time.Since(start) < 50*time.Millisecond; {
	}
	after, err := CPUTime(os.Getpid())
	require.NoError(t, err)
	require.Greater(t, after, before)
	_, err = CPUTime(-1)
	require.Error(t, err)
}
