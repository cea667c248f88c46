package courtesy

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// On one processor whoever can run does so between two steps, and sees that somebody waits.
func TestStep(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	require.False(t, Waiting())
	var ran, saw atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 10 {
			if ran.Add(1); Waiting() {
				saw.Add(1)
			}
			runtime.Gosched()
		}
	})
	for i := range 10 {
		Step()
		require.GreaterOrEqual(t, ran.Load(), int64(min(i, 1)))
	}
	wg.Wait()
	require.Positive(t, saw.Load())
	require.False(t, Waiting())
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
