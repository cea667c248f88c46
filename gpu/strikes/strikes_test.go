package strikes_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/strikes"
)

// Strikes count within the window only, and are forgotten when they were too many.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := strikes.Policy{Limit: 3, Window: time.Minute}
		var k strikes.Strikes
		require.False(t, k.Add(p))
		time.Sleep(40 * time.Second)
		require.False(t, k.Add(p))
		time.Sleep(40 * time.Second) // the first is out of the window
		require.False(t, k.Add(p))
		require.True(t, k.Add(p))
		require.False(t, k.Add(p), "the others are forgotten")
		require.EqualValues(t, 5, k.Total())
	})
}

// A successor goes on with the strikes that its predecessor told.
func TestRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := strikes.Policy{Limit: 3, Window: time.Minute}
		var k, next strikes.Strikes
		k.Add(p)
		k.Add(p)
		next.Restore(k.Snapshot())
		require.Equal(t, k.Snapshot().Count, next.Total())
		require.True(t, next.Add(p))
	})
}
