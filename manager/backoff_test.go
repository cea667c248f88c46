package manager

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBackoff(t *testing.T) {
	b := backoff{policy: RespawnPolicy{Budget: 4, Window: time.Minute, FirstDelay: 10 * time.Millisecond, MaxDelay: 50 * time.Millisecond}}
	now := time.Unix(1000, 0)
	for _, want := range []time.Duration{10, 20, 40, 50} {
		delay, again := b.died(now, 0, false)
		require.True(t, again)
		require.Equal(t, want*time.Millisecond, delay)
		now = now.Add(time.Second)
	}
	_, again := b.died(now, 0, false)
	require.False(t, again, "the fifth death within a minute")

	delay, again := b.died(now.Add(2*time.Minute), 0, false)
	require.True(t, again, "old deaths are forgiven")
	require.Equal(t, 10*time.Millisecond, delay)
}

func TestNoRespawn(t *testing.T) {
	b := backoff{policy: RespawnPolicy{Window: time.Minute}}
	_, again := b.died(time.Now(), 0, false)
	require.False(t, again)
}

// Deaths after Ready may be caused by a tenant: they delay the next driver, and never end the
// series.
func TestBackoffAfterReady(t *testing.T) {
	b := backoff{policy: RespawnPolicy{Budget: 1, Window: time.Minute, FirstDelay: 10 * time.Millisecond, MaxDelay: 50 * time.Millisecond}}
	now := time.Unix(1000, 0)
	for range 1000 {
		_, again := b.died(now, 0, true)
		require.True(t, again)
	}
	require.Len(t, b.deaths, maxDeaths)
	delay, again := b.died(now, 0, false)
	require.True(t, again, "the first death before Ready is within the budget")
	require.Equal(t, b.policy.MaxDelay, delay)
	_, again = b.died(now, 0, false)
	require.False(t, again)
}

// A driver that was ready and has lived longer than the delay is replaced at once; one
// that dies again and again is not.
func TestNoDelayAfterALife(t *testing.T) {
	b := backoff{policy: RespawnPolicy{Budget: 1, Window: time.Minute, FirstDelay: 10 * time.Millisecond, MaxDelay: 50 * time.Millisecond}}
	now := time.Unix(1000, 0)
	for _, c := range []struct{ lived, want time.Duration }{{1 << 20, 0}, {20, 0}, {10, 30}, {60, 0}, {1, 49}} {
		delay, again := b.died(now, c.lived*time.Millisecond, true)
		require.True(t, again)
		require.Equal(t, c.want*time.Millisecond, delay)
	}
	delay, again := b.died(now, time.Hour, false)
	require.True(t, again)
	require.Equal(t, b.policy.MaxDelay, delay, "it was never of use")
}
