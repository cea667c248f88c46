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
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	r := newMemRig(t, withBursts(newBurstBackend()))
	s := r.open("alice")
	m, q := buf(t, s, 4096), r.queue(s, 16, 64)
	pr, pw, err := os.Pipe()
	require.NoError(t, err)
	var woken atomic.Int64
	go func() {
		defer pr.Close()
		for b := make([]byte, 1); ; woken.Add(1) {
			if _, err := pr.Read(b); err != nil {
				return
			}
		}
	}()
	var trips []int
	for n := int64(1); n <= 15; n++ {
		for range 2000 { // it waits
			q.fill(m, 0, 4, 1)
			requireOK(t, q.one())
		}
		_, err := pw.Write([]byte{1})
		require.NoError(t, err)
		for k := 0; ; k++ {
			q.fill(m, 0, 4, 1)
			requireOK(t, q.one())
			if woken.Load() == n {
				trips = append(trips, k)
				break
			}
		}
	}
	require.NoError(t, pw.Close())
	slices.Sort(trips)
	require.Less(t, trips[len(trips)/2], keptMost/keptLook, "%v", trips)
}

func TestLookoutAllocatesNothing(t *testing.T) {
	l := newLookout()
	defer l.close()
	require.NotNil(t, l.conn)
	require.Zero(t, testing.AllocsPerRun(100, l.look))
}
