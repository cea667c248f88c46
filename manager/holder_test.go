package manager

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
)

// A driver that hands over memory which it is freeing does not leave its successor with
// addresses that the next allocation gets, too.
func TestSuccessorGetsNothingThatGoes(t *testing.T) {
	g := grant(t, grantTestLimits())
	lend := func() *dmaMemory {
		d, err := g.allocFor(nil, 4096)
		require.NoError(t, err)
		return d
	}
	kept, dropped, adopted := lend(), lend(), lend()
	g.dropOf(nil, dropped)
	to := &holder{}
	_, err := g.adopt(to, dropped.iova, dropped.generation)
	require.ErrorIs(t, err, gpuerr.Stale)
	for _, d := range []*dmaMemory{kept, adopted} {
		_, err := g.adopt(to, d.iova, d.generation)
		require.NoError(t, err)
	}
	g.dropOf(nil, adopted)
	require.ErrorIs(t, g.handOver(nil, to), gpuerr.Protocol)
	require.True(t, g.letGo(nil, adopted), "still the driver's")

	g.freeDropped()
	next := &holder{}
	_, err = g.adopt(next, kept.iova, kept.generation)
	require.NoError(t, err)
	late := lend()
	g.dropOf(nil, late) // after its successor has looked: it is freed by itself
	require.NoError(t, g.handOver(nil, next))
	require.False(t, g.letGo(nil, kept), "the successor's")
	g.dropOf(nil, kept)
	g.freeDropped()
	require.Len(t, g.fake.domain.Mappings(), 1)
	require.True(t, g.letGo(next, kept))
	require.NoError(t, g.free(kept))
}
