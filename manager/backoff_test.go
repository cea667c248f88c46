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
		delay, again := b.died(now, false)
		require.True(t, again)
		require.Equal(t, want*time.Millisecond, delay)
		now = now.Add(time.Second)
	}
	_, again := b.died(now, false)
	require.False(t, again, "the fifth death within a minute")

	delay, again := b.died(now.Add(2*time.Minute), false)
	require.True(t, again, "old deaths are forgiven")
	require.Equal(t, 10*time.Millisecond, delay)
}

func TestNoRespawn(t *testing.T) {
	b := backoff{policy: RespawnPolicy{Window: time.Minute}}
	_, again := b.died(time.Now(), false)
	require.False(t, again)
}

// Deaths after Ready may be a tenant's doing: they slow the respawn down, and
// never end it.
func TestBackoffAfterReady(t *testing.T) {
	b := backoff{policy: RespawnPolicy{Budget: 1, Window: time.Minute, FirstDelay: 10 * time.Millisecond, MaxDelay: 50 * time.Millisecond}}
	now := time.Unix(1000, 0)
	for range 1000 {
		_, again := b.died(now, true)
		require.True(t, again)
	}
	require.Len(t, b.deaths, maxDeaths)
	delay, again := b.died(now, false)
	require.True(t, again, "the first death before Ready is within the budget")
	require.Equal(t, b.policy.MaxDelay, delay)
	_, again = b.died(now, false)
	require.False(t, again)
}
