package gpu

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A sweep that is behind its clients serves the queues in the order in which they lie, and
// wherever it begins.
func TestRouteKeepsTheOrder(t *testing.T) {
	const n = 100
	for first := range n {
		r, left, order := route{}, [n]bool{}, []int(nil)
		for i := first; i < n; i++ {
			left[i] = true
		}
		for range 2 * n {
			r.step(n, func(i int) bool {
				some := left[i]
				if left[i] = false; some {
					order = append(order, i)
				}
				return some
			})
		}
		require.Len(t, order, n-first)
		require.IsIncreasing(t, append([]int{-1}, order...))
	}
}

// Wherever a queue lies that has something, it is found, soon if no other has, and also
// while others have all the time.
func TestRouteFindsAll(t *testing.T) {
	const n = 100
	for _, c := range []struct {
		busy  func(i int) bool
		steps int // that it may take
	}{
		{func(int) bool { return false }, n/sweepFar + 2},
		{func(i int) bool { return i < 3 }, 2 * n},
		{func(i int) bool { return i%2 == 0 }, 2 * n},
		{func(i int) bool { return i == n-1 }, 2 * n},
		{func(int) bool { return true }, 2 * n},
	} {
		for which := range n {
			r, found, rounds := route{}, false, 0
			for range c.steps {
				if r.step(n, func(i int) bool {
					found = found || i == which
					return c.busy(i)
				}) {
					rounds++
				}
			}
			require.True(t, found, which)
			require.NotZero(t, rounds, "queues come and go")
		}
	}
	r := route{last: n - 1, far: n - 1}
	r.step(3, func(i int) bool { require.Less(t, i, 3); return true }) // some have gone
}
