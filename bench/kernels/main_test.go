package main

import (
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestGoals(t *testing.T) {
	r := report{quiet: true}
	r.add(&Figure{Name: "without a goal", Value: 1})
	r.add(&Figure{Name: "fast", Short: "fast", Value: 2, Unit: "GFLOP/s", Goal: 2})
	r.add(&Figure{Name: "short", Short: "short", Value: 999, Unit: "ns", Goal: 1000, Below: true})
	line, missed := r.summary()
	require.False(t, missed)
	require.Equal(t, "kernels: fast 2 GFLOP/s (≥ 2), short 999 ns (< 1000)", line)
	r.add(&Figure{Name: "long", Short: "long", Value: 1000, Unit: "ns", Goal: 1000, Below: true})
	r.skip("no gcc")
	line, missed = r.summary()
	require.True(t, missed)
	require.Contains(t, line, "long 1e+03 ns (< 1000) MISSED, a part SKIPPED")
}

func TestAlternate(t *testing.T) {
	fixed := func(took time.Duration) side {
		return func(n int) time.Duration { return time.Duration(n) * took }
	}
	times := alternate(11, fixed(time.Millisecond), fixed(3*time.Millisecond))
	ratio, low, high := spread(times, func(t []float64) float64 { return t[1] / t[0] })
	require.Equal(t, [3]float64{3, 3, 3}, [3]float64{ratio, low, high})
}

// TestLoops: the C sides answer, and both kinds of side measure something.
func TestLoops(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed (Debian: apt-get install gcc)")
	}
	mem, err := newMemory()
	require.NoError(t, err)
	defer mem.Close()
	c, err := startC(mem, t.TempDir(), "loops")
	require.NoError(t, err)
	defer c.Close()
	require.Positive(t, c.loop("matvec")(1))
	bindings, inline := mem.matvec(side2048)
	matvec, err := body("matvec_f32", bindings, inline)
	require.NoError(t, err)
	require.Positive(t, matvec(1))
}
