package gpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/ring"
)

// TestMemoRecall: what the ring has found to be known counts only as long as its slot of
// the memo is still of that.
func TestMemoRecall(t *testing.T) {
	var m memo
	first := ring.Taken{Entry: ring.LaunchEntry(7, 1, ring.Dim3{X: 1, Y: 1, Z: 1}, ring.Dim3{X: 64, Y: 1, Z: 1}, 0, 0)}
	first.Words[0], first.Words[2] = uint64(ring.OpLaunch), 1
	r, known := m.find(&first, 1)
	require.False(t, known)
	remember := func(x *ring.Taken) {
		r.drop()
		r.job.op = x.Op
		r.known.Words, r.known.Args = memoKey(x), append(r.known.Args[:0], x.Args...)
		r.known.Serial++
		m.follow(r)
	}
	remember(&first)
	m.follow(r) // it came again
	guess := m.guess()
	require.Same(t, &r.known, guess)
	taken := first
	taken.Known, taken.Serial = guess, guess.Serial
	require.Same(t, r, m.recall(&taken))

	other := first
	other.Words[2] = 2
	remember(&other) // in the same slot, before what was taken is begun
	require.Nil(t, m.recall(&taken))
	r.drop()
	require.Nil(t, m.recall(&taken))

	moved := ring.Taken{Entry: ring.FillEntry(1, 2, 0, 4, 0, 0)}
	remember(&moved)
	m.follow(r)
	require.Nil(t, m.guess(), "only launches are guessed")
	taken.Known = &ring.Known{Of: "another's"}
	require.Nil(t, m.recall(&taken))
}
