package ring

import (
	"sync"
	"sync/atomic"
	"time"
)

// spinsFor is how many looks last about d; 0 for none. The first call
// measures how long a pause is, which takes some microseconds.
func spinsFor(d time.Duration) int {
	if d <= 0 {
		return 0
	}
	return max(1, int(float64(d)/lookNanos()))
}

// lookNanos is what a look and a pause take when nothing comes: 5 to 70 ns, by the
// processor. The best of some tries, because a try may be interrupted.
var lookNanos = sync.OnceValue(func() float64 {
	const tries, looks = 10, 50
	var word atomic.Uint64
	best := time.Duration(1 << 62)
	for range tries {
		began := time.Now()
		for range looks {
			if word.Load() != 0 {
				break
			}
			pause()
		}
		best = min(best, time.Since(began))
	}
	return max(1, float64(best)/looks)
})
