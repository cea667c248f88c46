package devicetest

import (
	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/engine/host"
	"capgpu/gpu/backend/engine/wire"
)

// ahead: as many runs as the wire allows are submitted and not ended, each sees what those
// before it have written, and their ends come in order.
func ahead(k *kit) {
	s := k.bound([][]byte{make([]byte, 4*200)})
	var lists [wire.MaxAhead]host.List
	for i := range lists {
		var entries []host.Entry
		for range i + 1 {
			entries = append(entries, k.launchOf("count", 1, nil, s[0]))
		}
		lists[i] = k.record(entries...)
	}

	sum := 0
	for range 5 {
		for _, l := range lists {
			k.submit(l)
		}
		for i := range lists {
			r := k.wait()
			k.isWhole(r, i+1)
			require.Positive(k, r.DeviceTime)
			sum += i + 1
		}
		require.EqualValues(k, sum, word(s[0].bytes(), 0))
	}
	for i := 1; i <= sum; i++ {
		require.EqualValues(k, i, word(s[0].bytes(), i))
	}
}

// sameListAhead: one list is submitted again while its first run has not ended.
func sameListAhead(k *kit) {
	s := k.bound([][]byte{make([]byte, 4*500)})
	l := k.record(k.launchOf("count", 1, nil, s[0]), k.launchOf("count", 1, nil, s[0]))
	for range wire.MaxAhead {
		k.submit(l)
	}
	const more = 100
	for range more {
		k.isWhole(k.wait(), 2)
		k.submit(l)
	}
	for range wire.MaxAhead {
		k.isWhole(k.wait(), 2)
	}
	require.EqualValues(k, 2*(more+wire.MaxAhead), word(s[0].bytes(), 0))
}

// sameListEndsEarly: among runs of one list that are submitted together the one that ends
// early is told, whichever it is, and the others by what they did.
func sameListEndsEarly(k *kit) {
	for room := range wire.MaxAhead + 1 {
		s := k.bound([][]byte{make([]byte, 4*(room+1)), make([]byte, 4*16)})
		full, behind := k.launchOf("count", 1, nil, s[0]), k.launchOf("count", 1, nil, s[1])
		l := k.record(full, behind)
		for range wire.MaxAhead {
			k.submit(l)
		}
		for i := range wire.MaxAhead {
			r := k.wait()
			switch {
			case i < room:
				k.isWhole(r, 2)
			case i == room:
				k.isEarly(r, 0, full)
			default:
				k.isSkipped(r)
			}
		}

		require.EqualValues(k, min(room, wire.MaxAhead), word(s[1].bytes(), 0), "room for %d", room)
		if room < wire.MaxAhead {
			require.NoError(k, k.d.Resume())
		}
	}
}

// skippedUntilResume: behind a run that ended early each run is skipped, of any list, of
// launches, copies and fills, also one that is submitted after that end was told.
func skippedUntilResume(k *kit) {
	s := k.bound([][]byte{make([]byte, 4), make([]byte, 64), noise(1, 64), make([]byte, 64)})
	counting := k.record(k.launchOf("count", 1, nil, s[1]))
	copying := k.record(copyOf(s[1], s[2]))
	filling := k.record(fillOf(s[3], 5))
	trap := k.launchOf("count", 1, nil, s[0])
	bad := k.record(trap)

	k.submit(bad)
	k.submit(copying)
	k.submit(counting)
	k.submit(filling)
	k.isEarly(k.wait(), 0, trap)
	k.isSkipped(k.wait())
	k.submit(copying)
	k.isSkipped(k.wait())
	k.isSkipped(k.wait())
	k.isSkipped(k.wait())
	for _, l := range []host.List{filling, counting, copying, bad, filling} {
		k.submit(l)
		k.isSkipped(k.wait())
	}
	require.Equal(k, make([]byte, 64), s[1].bytes())
	require.Equal(k, make([]byte, 64), s[3].bytes())
	require.EqualValues(k, 1, word(s[0].bytes(), 0), "it was skipped the second time")

	require.NoError(k, k.d.Resume())
	for _, l := range []host.List{counting, filling} {
		k.submit(l)
		k.isWhole(k.wait(), 1)
	}
	require.EqualValues(k, 1, word(s[1].bytes(), 0))
	require.EqualValues(k, 5, word(s[3].bytes(), 15))
}
