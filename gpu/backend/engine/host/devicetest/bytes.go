package devicetest

import (
	"bytes"
	"fmt"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/engine/host"
)

// odd are offsets and lengths of which each combination has another head and tail.
var (
	oddOffs    = []int{0, 1, 2, 3, 4, 7, 13, 4093}
	oddLengths = []int{1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 64, 1000, 4099}
)

// copies: any bytes to anywhere, and nothing beside them.
func copies(k *kit) {
	const room = 16 << 10
	from, to := k.imported(room), k.imported(room)
	src := noise(5, room)
	copy(from.client, src)
	want := noise(6, room)
	copy(to.client, want)

	var entries []host.Entry
	for i, off := range oddOffs {
		for _, at := range oddOffs {
			n := oddLengths[(i+at)%len(oddLengths)]
			entries = append(entries, copyOf(to.span(at, n), from.span(off, n)))
			copy(want[at:at+n], src[off:])
		}
	}
	for _, n := range oddLengths {
		entries = append(entries, copyOf(to.span(8190, n), from.span(8189, n)))
		copy(want[8190:8190+n], src[8189:])
	}
	k.whole(entries...)
	require.True(k, bytes.Equal(want, to.client))
	require.True(k, bytes.Equal(src, from.client))

	// Each alone, as a list of one copy.
	for _, n := range []int{1, 7, 4096, 5001} {
		k.whole(copyOf(to.span(3, n), from.span(1, n)))
		copy(want[3:3+n], src[1:])
		require.True(k, bytes.Equal(want, to.client), "%d bytes", n)
	}

	// More than a grid's worth of lanes.
	const large = 5<<20 + 3
	from, to = k.imported(large+8), k.imported(large+8)
	copy(from.client, noise(7, large+8))
	k.whole(copyOf(to.span(1, large), from.span(2, large)))
	require.True(k, bytes.Equal(from.client[2:2+large], to.client[1:1+large]))
	require.Zero(k, to.client[0])
	require.Zero(k, to.client[large+1])
}

// copiesOverlap: a copy of memory onto itself is as if by way of other memory.
func copiesOverlap(k *kit) {
	const room = 1 << 20
	p := k.imported(room)
	want := noise(8, room)
	copy(p.client, want)
	var entries []host.Entry
	var named []string
	for _, c := range [][3]int{ // to, from, length
		{0, 0, 100}, {1, 0, 1}, {1, 0, 100}, {0, 1, 100}, {3, 2, 5000}, {2, 3, 5000}, {4, 0, 9000}, {0, 4, 9000},
		{5000, 4999, 70_001}, {4999, 5000, 70_001}, {100_000, 0, 200_000}, {0, 100_000, 200_000},
		{16, 0, room - 16}, {0, 16, room - 16}, {1, 0, room - 1}, {0, 1, room - 1}, {7, 0, 7}, {6, 0, 7},
	} {
		to, from, n := c[0], c[1], c[2]
		e := copyOf(p.span(to, n), p.span(from, n))
		entries, named = append(entries, e), append(named, fmt.Sprintf("%d bytes from %d to %d", n, from, to))
		k.whole(e)
		copy(want[to:to+n], want[from:from+n])
		require.True(k, bytes.Equal(want, p.client), named[len(named)-1])
	}

	k.whole(entries...)
	for _, e := range entries {
		to, from, n := e.Spans[0].Off, e.Spans[1].Off, e.Spans[0].Length
		copy(want[to:to+n], want[from:from+n])
	}
	require.True(k, bytes.Equal(want, p.client), "all in one list")
}

// fills: any words, and nothing beside them.
func fills(k *kit) {
	const room = 64 << 10
	p := k.imported(room)
	want := noise(9, room)
	copy(p.client, want)
	var entries []host.Entry
	for i, off := range []int{0, 4, 8, 12, 4092, 4100, 20_000} {
		for j, n := range []int{4, 8, 12, 16, 60, 4096, 9004} {
			pattern := uint32(0x01020304 * (i + 1) * (j + 1))
			entries = append(entries, fillOf(p.span(off, n), pattern))
			copy(want[off:off+n], bytes.Repeat(words(pattern), n/4))
		}
	}
	k.whole(entries...)
	require.True(k, bytes.Equal(want, p.client))

	k.whole(fillOf(p.all(), 0xA5A5A5A5))
	require.True(k, bytes.Equal(bytes.Repeat([]byte{0xA5}, room), p.client))
}

// neighbours: many pieces of one memory in one list, some of which touch.
func neighbours(k *kit) {
	const room, step = 32 << 10, 37
	p := k.imported(room)
	want := noise(10, room)
	copy(p.client, want)
	var entries []host.Entry
	for at := 0; at+3*step < room && len(entries) < 400; at += step {
		entries = append(entries, copyOf(p.span(at, step), p.span(at+2*step, step)))
		copy(want[at:at+step], want[at+2*step:])
		if at%(4*step) == 0 {
			entries = append(entries, fillOf(p.span(at&^3, 8), uint32(at)))
			copy(want[at&^3:], words(uint32(at), uint32(at)))
		}
	}
	k.whole(entries...)
	require.True(k, bytes.Equal(want, p.client))
}
