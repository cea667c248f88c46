package prefetch

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// What is asked for stays as it is, whatever it is: also nothing, and memory that nobody may
// touch.
func TestNothingChanges(t *testing.T) {
	x := [3][lineBytes]byte{{1}, {2}, {3}}
	before := x
	Of(&x)
	Of[int](nil)
	Bytes(x[1][:])
	Bytes(nil)
	In(&x, 3)
	In(&x, 0)
	In(nil, 3)
	In(7, 1)
	word := uint64(7)
	Two(&word, nil)
	require.Equal(t, uint64(7), word)
	require.Equal(t, before, x)

	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	Bytes(page)
	require.NoError(t, unix.Munmap(page))
	require.Zero(t, testing.AllocsPerRun(100, func() { Of(&x); Bytes(x[0][:]) }))
}
