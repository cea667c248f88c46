package ddf

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStormGauge(t *testing.T) {
	var g StormGauge
	now := time.Unix(1_000_000, 0)
	for range 10 * 100 { // 100,000 a second for ten seconds
		require.False(t, g.Count(1000, now))
		now = now.Add(10 * time.Millisecond)
	}
	now = now.Add(time.Second)
	require.False(t, g.Count(StormLimit, now))
	require.True(t, g.Count(1, now.Add(999*time.Millisecond)))
	require.False(t, g.Count(StormLimit, now), "after a storm it begins anew")
	require.False(t, g.Count(StormLimit, now.Add(time.Second)))
	require.True(t, g.Count(1<<64-1, now.Add(time.Second)))
}
