package devicetest

import (
	"bytes"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
)

// localIsZero: new local memory is zero, also where a pattern was.
func localIsZero(k *kit) {
	const size = 1<<20 + 4096
	seen := k.imported(size)
	for round := range 4 {
		var all []*piece
		for range 3 {
			p := k.local(size)
			all = append(all, p)
			copy(seen.client, bytes.Repeat([]byte{0xEE}, size))
			k.whole(copyOf(seen.span(0, size), p.span(0, size)))
			require.True(k, bytes.Equal(make([]byte, size), seen.client[:size]), "round %d", round)
			k.whole(fillOf(p.span(0, size), 0xDEADBEEF))
		}
		for _, p := range all {
			require.NoError(k, p.Free())
		}
	}
}

// localCopies: bytes come to local memory and back, and programs work on it.
func localCopies(k *kit) {
	const size = 300_003
	in, out, p := k.imported(size), k.imported(size), k.local(size)
	k.owned(p)
	copy(in.client, noise(11, size))
	k.whole(copyOf(p.span(1, size-1), in.span(0, size-1)), copyOf(out.span(2, size-2), p.span(2, size-2)))
	require.True(k, bytes.Equal(in.client[1:size-1], out.client[2:size]))

	k.whole(fillOf(p.span(0, 4*1000), 0), k.launchOf("count", 1, nil, p.span(0, 4*1000)), k.launchOf("count", 1, nil, p.span(0, 4*1000)),
		copyOf(out.span(0, 4*1000), p.span(0, 4*1000)))
	require.Equal(k, words(2, 1, 2, 0), out.client[:16])
}

// localQuota: more than there is is refused, and does no harm.
func localQuota(k *kit) {
	_, err := k.d.Alloc(1 << 50)
	require.ErrorIs(k, err, gpuerr.Quota)
	p := k.local(4096)
	k.whole(fillOf(p.all(), 1))
	require.NoError(k, p.Free())
}
