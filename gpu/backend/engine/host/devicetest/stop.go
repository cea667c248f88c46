package devicetest

import (
	"encoding/binary"
	"runtime"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/engine/host"
	"capgpu/program/instrument"
)

// stop: an endless loop is ended, whether it had begun or not, and the runs ahead are
// skipped. Afterwards nothing is stopped any more.
func stop(k *kit) {
	s := k.bound([][]byte{make([]byte, 12), words(0, 0, 5000), words(0, 0, 0)})
	endless, later := k.launchOf("await", 1, nil, s[0]), k.launchOf("await", 1, nil, s[1])
	l, behind := k.record(endless), k.record(later)
	for round := range 3 {
		copy(s[0].bytes(), words(0, 0, 1<<31))
		k.submit(l)
		k.submit(behind)
		for began := time.Now(); round > 0 && binary.LittleEndian.Uint32(s[0].bytes()) == 0; {
			require.Less(k, time.Since(began), patience, "the loop does not begin")
			runtime.Gosched()
		}
		k.d.Stop()
		require.Equal(k, instrument.Stopped, k.isEarly(k.wait(), 0, endless).End)
		k.isSkipped(k.wait())
		require.NoError(k, k.d.Resume())
	}
	require.Zero(k, word(s[1].bytes(), 0))

	spin := k.launchOf("spin", 3, nil)
	k.submit(k.record(spin, later))
	k.d.Stop()
	require.Equal(k, instrument.Stopped, k.isEarly(k.wait(), 0, spin).End)
	require.NoError(k, k.d.Resume())

	k.submit(behind)
	k.isWhole(k.wait(), 1)
	require.EqualValues(k, 5000, word(s[1].bytes(), 0))
}

// toldAtOnce: the end of a run is told while the one behind it goes on, whatever that does.
func toldAtOnce(k *kit) {
	s := k.bound([][]byte{make([]byte, 64), words(0, 0, 1<<31), make([]byte, 4)})
	endless := k.launchOf("await", 1, nil, s[1])
	l, whole := k.record(endless), k.record(k.launchOf("count", 1, nil, s[0]))
	for range 2 {
		k.submit(whole)
		k.submit(whole)
		k.submit(l)
		k.isWhole(k.wait(), 1)
		k.isWhole(k.wait(), 1)
		k.d.Stop()
		require.Equal(k, instrument.Stopped, k.isEarly(k.wait(), 0, endless).End)
		require.NoError(k, k.d.Resume())
	}

	// A trap, too.
	trap := k.launchOf("count", 1, nil, s[2])
	bad := k.record(trap)
	k.submit(whole)
	k.submit(bad)
	k.submit(l)
	k.isWhole(k.wait(), 1)
	k.isEarly(k.wait(), 0, trap)
	k.isSkipped(k.wait())
	require.NoError(k, k.d.Resume())
	require.EqualValues(k, 5, word(s[0].bytes(), 0))
}

// stopOfRunsBefore: Stop is for runs that are submitted, and not for later ones; without a
// loop a run comes to its end.
func stopOfRunsBefore(k *kit) {
	s := k.bound([][]byte{words(0, 0, 5000), make([]byte, 64)})
	loop, short := k.record(k.launchOf("await", 1, nil, s[0])), k.record(fillOf(s[1], 1), fillOf(s[1], 2))
	for _, list := range [][]host.List{{loop}, {short, loop}, {short, short, loop}} {
		copy(s[0].bytes(), words(0, 0, 5000))
		k.d.Stop() // of nothing
		for i, l := range list {
			if k.submit(l); i < len(list)-1 {
				k.d.Stop()
			}
		}
		for i := range list {
			if r := k.wait(); i < len(list)-1 {
				k.isWhole(r, 2)
			} else {
				k.isWhole(r, 1)
			}
		}
		require.EqualValues(k, 5000, word(s[0].bytes(), 0))
	}
}
