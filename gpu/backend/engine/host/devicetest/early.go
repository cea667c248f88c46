package devicetest

import (
	"bytes"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/engine/host"
	"capgpu/program/instrument"
)

// early: behind an entry that ended early no launch, copy or fill of its list does anything,
// wherever the entry stands, and those before it are done. The slot says what the lane
// engine says.
func early(k *kit) {
	const n = 4
	for bad := range 3 {
		s := k.bound([][]byte{make([]byte, 400), words(0, 0), noise(1, 400), noise(2, 400), noise(3, 40), words(0, 0, 0, 0)})
		good, none, a, b, c, counted := s[0], s[1], s[2], s[3], s[4], s[5]
		trap := k.launchOf("count", 1, nil, none.p.span(int(none.off), 4)) // room for no number
		_, want := k.onLane(trap, [][]byte{words(0)})

		var entries []host.Entry
		for range bad {
			entries = append(entries, k.launchOf("count", 1, nil, good))
		}
		entries = append(entries, trap,
			k.launchOf("count", 1, nil, counted), copyOf(a, b), fillOf(c, 9), copyOf(b.p.span(int(b.off)+1, 300), b.p.span(int(b.off)+5, 300)), fillOf(none, 1))
		before := contents(s)
		r := k.run(entries...)
		k.isTrap(r, bad, trap, want)

		require.EqualValues(k, bad, word(good.bytes(), 0), "entries before it are done")
		for i, same := range []span{a, b, c, counted} {
			require.True(k, bytes.Equal(before[i+2], same.bytes()), "bad is %d: entry %d behind it did something", bad, i)
		}
		require.Zero(k, word(none.bytes(), 1))
		require.NoError(k, k.d.Resume())
		k.whole(entries[bad+1 : bad+1+n]...)
		require.EqualValues(k, 1, word(counted.bytes(), 0))
	}
}

// earlyOfOneEntry: a run of one entry ends early, again and again, and lists that were
// recorded before go on after Resume.
func earlyOfOneEntry(k *kit) {
	s := k.bound([][]byte{make([]byte, 64), make([]byte, 4)})
	good := k.record(k.launchOf("count", 1, nil, s[0]))
	trap := k.launchOf("trap", 1, nil, s[1])
	_, want := k.onLane(trap, [][]byte{make([]byte, 4)})
	bad := k.record(trap)
	for range 3 {
		k.submit(bad)
		k.isTrap(k.wait(), 0, trap, want)
		require.NoError(k, k.d.Resume())
		k.submit(good)
		k.isWhole(k.wait(), 1)
	}
	require.EqualValues(k, 3, word(s[0].bytes(), 0))
}

// rounds: a lane has as many rounds as its entry says, and may have more in another entry.
func rounds(k *kit) {
	s := k.bound([][]byte{words(0, 0, 3000), words(0, 0, 3000)})
	few, enough := k.launchOf("await", 1, nil, s[0]), k.launchOf("await", 1, nil, s[1])
	few.Rounds, enough.Rounds = 2*instrument.PollRounds, 1<<20
	r := k.run(enough, few)
	report := k.isEarly(r, 1, few)
	require.Equal(k, instrument.TooLong, report.End)
	require.EqualValues(k, 3000, word(s[1].bytes(), 0))
	require.Less(k, word(s[0].bytes(), 0), uint32(3000))
	require.NoError(k, k.d.Resume())

	spin := k.launchOf("spin", 3, nil)
	spin.Rounds = 10_000
	require.Equal(k, instrument.TooLong, k.isEarly(k.run(spin), 0, spin).End)
}

// slots: the slot is that of the entry that ended early, among many with other lengths; and
// nothing is left in it of an earlier end.
func slots(k *kit) {
	s := k.bound([][]byte{make([]byte, 4*300), make([]byte, 4*300), make([]byte, 4*300)})
	good := func() host.Entry { return k.launchOf("fill_u32", 1, words(0), s[2]) }
	for round := range 2 {
		for _, columns := range []uint32{2, 10, 25} {
			x := s[1].p.span(int(s[1].off), int(4*(columns-1))) // one too few
			bad := k.launchOf("matvec_f32", 2, words(2, columns), s[0], x, s[2])
			_, want := k.onLane(bad, contents([]span{s[0], x, s[2]}))
			require.NotZero(k, want.Kind)
			entries := []host.Entry{good(), good(), good()}[:round+1]
			r := k.run(append(entries, bad, good())...)
			report := k.isEarly(r, round+1, bad)
			require.Equal(k, want.Kind, report.Trap.Kind)
			require.Equal(k, want.Binding, report.Trap.Binding)
			require.Equal(k, want.Offset, report.Trap.Offset)
			require.NoError(k, k.d.Resume())
		}
	}

	// An index of one access is no index of the next.
	one := k.launchOf("trap", 1, nil, s[0])
	l := k.record(one)
	k.submit(l)
	first := k.wait()
	require.NoError(k, k.d.Resume())
	k.submit(l)
	second := k.wait()
	require.Equal(k, first.Slot, second.Slot)
}
