package records_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/records"
)

// A burst passes, then one in each interval, which says how many did not.
func TestPace(t *testing.T) {
	now := time.Unix(0, 0)
	p := records.NewPace(2, time.Second, now)
	for range 2 {
		more, recorded := p.Enter(now)
		require.True(t, recorded)
		require.Zero(t, more)
	}

	for range 5 {
		_, recorded := p.Enter(now)
		require.False(t, recorded)
	}

	now = now.Add(time.Second)
	more, recorded := p.Enter(now)
	require.True(t, recorded)
	require.EqualValues(t, 5, more)
	_, recorded = p.Enter(now)
	require.False(t, recorded)
}
