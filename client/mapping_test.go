package client_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/driver/session/sessiontest"
)

// pagesOf is how many bytes of a buffer's memory file have pages.
func pagesOf(t *testing.T, b *client.Buffer) int64 {
	t.Helper()
	fd, _, _ := b.Memory()
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(fd, &st))
	return st.Blocks * 512
}

// Map puts pages under what will be touched, and no more than it says.
func TestMapPopulates(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	ctx := testContext(t)
	s := svc.Open(t)
	const most = 64 << 20
	b, err := s.CreateBuffer(ctx, most+(4<<20), client.Storage)
	require.NoError(t, err)
	_, err = b.WriteAt([]byte{1}, 5000)
	require.NoError(t, err)
	require.EqualValues(t, 4096, pagesOf(t, b), "WriteAt touches what it writes")
	mem, err := b.Map()
	require.NoError(t, err)
	if pagesOf(t, b) == 4096 {
		t.Skip("SKIPPED: this kernel does not populate (before Linux 5.14)")
	}
	require.EqualValues(t, most, pagesOf(t, b))
	require.EqualValues(t, 1, mem[5000])
	mem[len(mem)-1] = 1
	require.EqualValues(t, most+4096, pagesOf(t, b))

	// A program that punches its memory out has it back with the next touch, not the next Map.
	fd, _, _ := b.Memory()
	require.NoError(t, unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(len(mem))))
	require.Zero(t, pagesOf(t, b))
	_, err = b.Map()
	require.NoError(t, err)
	require.Zero(t, pagesOf(t, b))
	require.Zero(t, mem[5000])
	require.NoError(t, b.Unmap())
	require.NoError(t, b.Close(ctx))
}
