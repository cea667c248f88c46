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
	Between(&x[0][7], &x[2][1])
	words := []uint64{1, 2, 3}
	Words(words)
	Words(nil)
	ToWrite(words[1:])
	ToWrite(words[3:])
	require.Equal(t, []uint64{1, 2, 3}, words)
	Lines([]Line{0, LineOf(x[1][3:]), LineOf(nil), 1, ^Line(0)})
	require.Equal(t, uint64(7), word)
	require.Equal(t, before, x)

	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	Bytes(page)
	Lines([]Line{LineOf(page)})
	require.NoError(t, unix.Munmap(page))
	require.Zero(t, testing.AllocsPerRun(100, func() { Of(&x); Bytes(x[0][:]) }))
}
