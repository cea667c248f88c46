package yield

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// On one processor other goroutines run between two steps.
func TestStep(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var ran atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 10 {
			ran.Add(1)
			runtime.Gosched()
		}
	})
	for i := range 10 {
		Step()
		require.GreaterOrEqual(t, ran.Load(), int64(min(i, 1)))
	}
	wg.Wait()
}

func TestToOthers(t *testing.T) {
	given := 0
	ToOthers(func() { given++ })
	Step()
	Step()
	require.Equal(t, 2, given)
	ToOthers(nil)
	Step()
	require.Equal(t, 2, given)
}

// Short work of others always goes first; long work does for a small part of the time.
func TestSparingly(t *testing.T) {
	for _, test := range []struct {
		others time.Duration
		given  int // in 1000 steps of 50 µs
	}{{0, 1000}, {longYield, 1000}, {3 * time.Millisecond, 5}, {time.Second, 3}} {
		synctest.Test(t, func(t *testing.T) {
			given := 0
			yield := Sparingly(func() { given++; time.Sleep(test.others) })
			start := time.Now()
			for range 1000 {
				time.Sleep(50 * time.Microsecond)
				yield()
			}
			require.Equal(t, test.given, given)
			require.Equal(t, 50*time.Millisecond+time.Duration(given)*test.others, time.Since(start))
			time.Sleep(maxPause)
			yield()
			require.Equal(t, test.given+1, given)
		})
	}
}
