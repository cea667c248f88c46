package devicetest

import (
	"bytes"
	"math"
	"math/rand/v2"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/engine/host"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/program/library/librarytest"
)

// describe: the description is one that programs can be checked against.
func describe(k *kit) {
	d := k.about
	require.NotEmpty(k, d.Name)
	require.NotEmpty(k, d.Driver)
	require.GreaterOrEqual(k, d.MaxThreadsPerBlock, uint32(128))
	require.GreaterOrEqual(k, d.MaxBlock.X, uint32(128))
	require.GreaterOrEqual(k, d.MaxGrid.X, uint32(65535))
	require.GreaterOrEqual(k, d.MaxSharedBytes, uint32(16<<10))
	require.GreaterOrEqual(k, d.MaxBindings, uint32(4))
	require.GreaterOrEqual(k, d.MaxPushBytes, uint32(128))
	require.Positive(k, d.SubgroupSize)
	require.Positive(k, d.OffsetAlign)
	require.Zero(k, d.OffsetAlign&(d.OffsetAlign-1), "a power of two")
	require.GreaterOrEqual(k, d.MaxBindingBytes, uint64(128<<20))
}

// launch: one launch, and the device's time of it.
func launch(k *kit) {
	c := librarytest.Sized("vecadd_f32", rand.New(rand.NewPCG(1, 2)), 70_000, 70_000, 70_000)
	spans := k.bound(c.Bindings)
	e := k.gridOf("vecadd_f32", c.Natural(), c.Inline, spans...)
	r := k.whole(e)
	require.Positive(k, r.DeviceTime)
	require.Less(k, r.DeviceTime, patience)
	require.NoError(k, c.Compare(contents(spans)))
}

// dependency: each entry sees what those before it have written.
func dependency(k *kit) {
	const n = 5000
	ones := bytes.Repeat(words(0x3F800000), n)
	s := k.bound([][]byte{ones, make([]byte, 4*n), make([]byte, 4*n), make([]byte, 4*n)})
	one, a, b, c := s[0], s[1], s[2], s[3]
	vecadd := func(x, y, to span) host.Entry { return k.launchOf("vecadd_f32", 4, nil, x, y, to) }
	l := k.record(
		k.saxpy(one, a),       // a = 1
		copyOf(b, a),          // b = 1
		k.saxpy(a, b),         // b = 2
		vecadd(a, b, c),       // c = 3
		copyOf(a, c),          // a = 3, which was read
		fillOf(c, 0),          // c = 0, which was read
		vecadd(a, b, c),       // c = 5
		fillOf(b, 0x3F800000), // b = 1
		k.saxpy(b, c),         // c = 6
	)
	k.submit(l)
	k.isWhole(k.wait(), 9)
	for want, s := range map[float32]span{3: a, 1: b, 6: c} {
		for i := range n {
			require.InDelta(k, want, math.Float32frombits(word(s.bytes(), i)), 0, "word %d", i)
		}
	}
}

// bindings: a binding may be of any length, also of none, at any aligned offset, and what
// lies beside it stays as it is.
func bindings(k *kit) {
	align := int(k.about.OffsetAlign)
	size := (64 + align) / align * align
	p := k.imported(8 * size)
	before := noise(3, len(p.client))
	for _, length := range []int{0, 4, 8, 12, 20, 60} {
		copy(p.client, before)
		e := k.launchOf("fill_u32", 1, words(0x01020304), p.span(2*size, length))
		k.whole(e)
		want := bytes.Clone(before)
		copy(want[2*size:], bytes.Repeat(words(0x01020304), length/4))
		require.True(k, bytes.Equal(want, p.client), "binding of %d bytes", length)
	}

	// Without bytes there need be no memory.
	e := k.launchOf("fill_u32", 1, words(7), p.span(0, 0))
	e.Memory[0] = nil
	k.whole(e)
}

// longList: a list has as many entries as the wire allows, in order.
func longList(k *kit) {
	s := k.bound([][]byte{make([]byte, 4*(wire.MaxEntries+1))})
	entries := make([]host.Entry, wire.MaxEntries)
	for i := range entries {
		entries[i] = k.launchOf("count", 1, nil, s[0])
	}
	k.whole(entries...)
	require.EqualValues(k, wire.MaxEntries, word(s[0].bytes(), 0))
	for i := 1; i <= wire.MaxEntries; i++ {
		require.EqualValues(k, i, word(s[0].bytes(), i))
	}
}

// coherence: client and device see each other's writes without a copy, between runs of one
// recorded list.
func coherence(k *kit) {
	const n = 3 << 10
	s := k.bound([][]byte{make([]byte, 4*n), make([]byte, 4*n)})
	l := k.record(k.launchOf("copy", 4, nil, s[0], s[1]))
	for round := range uint64(20) {
		was := noise(round, 4*n)
		copy(s[0].bytes(), was)
		clear(s[1].bytes())
		k.submit(l)
		k.isWhole(k.wait(), 1)
		require.True(k, bytes.Equal(was, s[1].bytes()), "round %d", round)
	}
}

// contents are what the client sees of spans.
func contents(spans []span) [][]byte {
	var all [][]byte
	for _, s := range spans {
		all = append(all, bytes.Clone(s.bytes()))
	}
	return all
}
