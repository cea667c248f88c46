package tick

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// calibrated waits until the counter's speed is known.
func calibrated(t testing.TB) Clock {
	t.Helper()
	for began := time.Now(); time.Since(began) < time.Second; {
		if c := Best(); c.scale != 0 {
			return c
		}
	}
	t.Skip("this machine has no counter of one speed")
	return Clock{}
}

func TestBothClocksAgree(t *testing.T) {
	c := calibrated(t)
	best := 1.0
	for range 20 {
		began, a := time.Now(), c.Read()
		for time.Since(began) < 2*time.Millisecond {
		}
		b, took := c.Read(), time.Since(began)
		require.Greater(t, b, a)
		off := float64(b-a)/float64(took) - 1
		best = min(best, max(off, -off))
	}
	require.Less(t, best, 0.002)
}

func TestPackageTimeWhereThereIsNoOther(t *testing.T) {
	var c Clock
	a := c.Read()
	b := c.Read()
	require.GreaterOrEqual(t, b, a)
	require.Less(t, b-a, int64(time.Minute))
}

func TestScaleOf(t *testing.T) {
	for _, c := range []struct {
		ticks uint64
		nanos int64
		want  float64 // ns of a tick; 0: refused
	}{
		{3_000_000, 1_000_000, 1.0 / 3},
		{100_000, 1_000_000, 10},
		{10_000_000, 1_000_000, 0.1},
		{99_999, 1_000_000, 0},
		{10_000_010, 1_000_000, 0},
		{0, 1_000_000, 0},
		{5, 0, 0},
		{1 << 62, 1 << 61, 0.5}, // a lifetime of the machine
	} {
		s, ok := scaleOf(pair{77, 5}, pair{77 + c.ticks, 5 + c.nanos})
		require.Equal(t, c.want != 0, ok, "%+v", c)
		require.InEpsilon(t, c.want+1, float64(s)/(1<<32)+1, 1e-6, "%+v", c)
	}
}

func BenchmarkRead(b *testing.B) {
	c := calibrated(b)
	for b.Loop() {
		c.Read()
	}
}
