package paired

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// fixed is a side with operations of this duration.
func fixed(order *string, name string, takes time.Duration) Side {
	return func(slice time.Duration, add func(float64)) error {
		*order += name
		return Rounds(func() error { time.Sleep(takes); return nil })(slice, add)
	}
}

func TestCompare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order string
		r, err := Compare(Options{Pairs: 4, Slice: 10 * time.Millisecond}, fixed(&order, "a", 3*time.Millisecond), fixed(&order, "b", time.Millisecond))
		require.NoError(t, err)
		require.Equal(t, Result{Ratio: 3, Low: 3, High: 3, Ours: 3e6, Peer: 1e6, Pairs: 4}, r)
		require.Equal(t, "abbaabba", order, "each is first in every other pair")
		back := r.Inverse()
		require.InDelta(t, 1.0/3, back.Ratio, 1e-12)
		require.Equal(t, 4, back.Pairs)
	})
}

func TestCompareEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order string
		r, err := Compare(Options{Pairs: 1000, Slice: time.Second, Longest: 5 * time.Second}, fixed(&order, "", time.Second), fixed(&order, "", time.Second))
		require.NoError(t, err)
		require.Equal(t, 3, r.Pairs)
	})
}

func TestCompareFails(t *testing.T) {
	broken := errors.New("broken")
	good := Rounds(func() error { return nil })
	_, err := Compare(Options{Pairs: 1, Slice: time.Microsecond}, good, Rounds(func() error { return broken }))
	require.ErrorIs(t, err, broken)
	_, err = Compare(Options{Pairs: 1, Slice: time.Microsecond}, good, func(time.Duration, func(float64)) error { return nil })
	require.ErrorContains(t, err, "measured nothing")
	_, err = Compare(Options{}, good, good)
	require.Error(t, err)
}

// The band is that of the pairs' ratios, not of either side.
func TestBand(t *testing.T) {
	n := 0.0
	counting := func(_ time.Duration, add func(float64)) error { n++; add(n); return nil }
	constant := func(_ time.Duration, add func(float64)) error { add(2); return nil }
	r, err := Compare(Options{Pairs: 100, Slice: 1}, counting, constant)
	require.NoError(t, err)
	require.Equal(t, Result{Ratio: 25.5, Low: 5.5, High: 45.5, Ours: 51, Peer: 2, Pairs: 100}, r)
	back := r.Inverse()
	require.Less(t, back.Low, back.High)
}

func TestSidesOfOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []float64
		add := func(nanos float64) { got = append(got, nanos) }
		sleep := func() error { time.Sleep(2 * time.Millisecond); return nil }
		require.NoError(t, Batches(1000, sleep)(3*time.Millisecond, add))
		require.Equal(t, []float64{2000, 2000}, got, "of one operation of the batch")
		got = nil
		require.NoError(t, Timed(func() (time.Duration, error) { time.Sleep(time.Second); return 5, nil })(time.Second, add))
		require.Equal(t, []float64{5}, got)
		got = nil
		require.NoError(t, Timed(func() (time.Duration, error) { time.Sleep(time.Second); return 6, nil }).Per(3)(time.Second, add))
		require.Equal(t, []float64{2}, got, "of one of three")
		each, err := Each(3, time.Hour, sleep)
		require.NoError(t, err)
		require.Equal(t, []float64{2e6, 2e6, 2e6}, each)
		each, err = Each(100, 9*time.Millisecond, sleep)
		require.NoError(t, err)
		require.Len(t, each, 5)
	})
}

// Very short operations are measured in groups.
func TestRoundsAreGrouped(t *testing.T) {
	calls, samples := 0, 0
	require.NoError(t, Rounds(func() error { calls++; return nil })(time.Millisecond, func(float64) { samples++ }))
	require.Greater(t, calls, 10*samples)
}

func TestQuantiles(t *testing.T) {
	values := []float64{5, 1, 4, 2, 3}
	require.Equal(t, []float64{1, 3, 5, 5}, Quantiles(values, 0, 0.5, 0.9, 1))
	require.Equal(t, []float64{5, 1, 4, 2, 3}, values, "they stay as they are")
	require.Equal(t, 2.0, Median([]float64{2, 1}))
}
