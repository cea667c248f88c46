package gpu

import (
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Who waits for a pipe is woken soon, also while a queue and its client keep the only
// processor busy.
func TestLookout(t *testing.T) {
	t.Run("bursts", func(t *testing.T) {
		testLookout(t, 1000+keptLook+keptEntry, func(s *Session, q *client) func() {
			m := buf(t, s, 4096)
			return func() { q.fill(m, 0, 4, 1) }
		})
	})
	t.Run("replays", func(t *testing.T) {
		testLookout(t, 50*1000+keptLook+keptEntry, func(s *Session, q *client) func() {
			l, _, _ := longList(t, s, 50)
			return func() { q.replayPlain(l) }
		})
	})
}

// testLookout has a queue do work of which each counts so much.
func testLookout(t *testing.T, counts int, work func(*Session, *client) func()) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	r := newMemRig(t, withLists(newBurstBackend()))
	s := r.open("alice")
	q := r.queue(s, 16, 64)
	push := work(s, q)
	pr, pw, err := os.Pipe()
	require.NoError(t, err)
	var woken atomic.Int64
	go func() {
		defer pr.Close()
		var b [1]byte
		for ; ; woken.Add(1) {
			if _, err := pr.Read(b[:]); err != nil {
				return
			}
		}
	}()
	var trips []int
	for n := int64(1); n <= 15; n++ {
		for range 2000 { // it waits
			push()
			requireOK(t, q.one())
		}
		_, err := pw.Write([]byte{1})
		require.NoError(t, err)
		for k := 0; ; k++ {
			push()
			requireOK(t, q.one())
			if woken.Load() == n {
				trips = append(trips, k)
				break
			}
		}
	}
	require.NoError(t, pw.Close())
	slices.Sort(trips)
	require.LessOrEqual(t, trips[len(trips)/2], keptMost/counts+2, "%v", trips)
}

func TestLookoutAllocatesNothing(t *testing.T) {
	l := newLookout(true)
	defer l.close()
	require.NotNil(t, l.conn)
	require.Zero(t, testing.AllocsPerRun(100, l.look))
}

// While calls take their steps nobody waits for all of them, but not for ever: a pipe is
// looked at all the same.
func TestLookoutPutsOff(t *testing.T) {
	l := newLookout(true)
	defer l.close()
	waits, given := true, 0
	l.waits, l.giveWay = func() bool { return waits }, func() { given++ }
	l.goOn(keptMost, keptMost)
	require.Zero(t, l.looks.Load())
	l.goOn(keptCalls-1, keptMost)
	require.Zero(t, l.looks.Load())
	l.goOn(1, keptMost)
	require.EqualValues(t, 1, l.looks.Load())
	require.Equal(t, 1, given)
	require.Zero(t, l.kept.Load())
	waits = false
	l.goOn(keptMost-1, keptMost)
	require.EqualValues(t, 1, l.looks.Load())
	l.goOn(1, keptMost)
	require.EqualValues(t, 2, l.looks.Load())
}

// A device that computes on the host's processors has others looked at as a queue does that
// goes on for long, unless nobody else is there.
func TestLookoutWhileTheDeviceComputes(t *testing.T) {
	r := newMemRig(t, withLists(newBurstBackend()))
	e := r.dev.engine
	r.open("alice")
	before := e.lookout.looks.Load()
	for range 3 {
		e.Computed(keptMost)
	}
	require.Equal(t, before, e.lookout.looks.Load())
	r.open("bob")
	before = e.lookout.looks.Load()
	e.lookout.kept.Store(0)
	e.Computed(keptMost - 1)
	require.Equal(t, before, e.lookout.looks.Load())
	e.Computed(1)
	require.Equal(t, before+1, e.lookout.looks.Load())
}
