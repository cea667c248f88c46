package devicetest

import (
	"bytes"

	"github.com/stretchr/testify/require"
)

// residue: shared and private memory show nothing of an earlier launch, of the same list or
// of another.
func residue(k *kit) {
	s := k.bound([][]byte{bytes.Repeat(words(0xDEADBEEF), 4+64), bytes.Repeat([]byte{0xEE}, 4*(8192+1))})
	leave, show := k.launchOf("leave", 8, nil, s[0]), k.launchOf("show", 8, nil, s[1])
	left, shown := k.record(leave), k.record(show)
	for range 3 {
		copy(s[1].bytes(), bytes.Repeat([]byte{0xEE}, 4*8192))
		copy(s[1].bytes()[4*8192:], words(0))
		k.submit(left)
		k.submit(shown)
		k.isWhole(k.wait(), 1)
		k.isWhole(k.wait(), 1)
		require.True(k, bytes.Equal(make([]byte, 4*8192), s[1].bytes()[:4*8192]))
	}

	copy(s[1].bytes(), bytes.Repeat([]byte{0xEE}, 4*8192))
	k.whole(leave, show)
	require.True(k, bytes.Equal(make([]byte, 4*8192), s[1].bytes()[:4*8192]))
}
