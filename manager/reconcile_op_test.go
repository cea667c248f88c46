package manager

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/iommu"
)

// Operations may end in any order, each in the epoch in which it began.
func TestOpRecorderOrder(t *testing.T) {
	r := &opRecorder{}
	for seq := uint64(1); seq <= 4; seq++ {
		r.SetEpoch(seq)
		r.Began(iommu.Op{Seq: seq})
	}
	for _, seq := range []uint64{2, 4, 7, 1} { // the seventh has not begun
		r.Ended(iommu.Op{Seq: seq, End: 1}, nil)
	}
	ended, open, dropped := r.take()
	require.Equal(t, []endedOp{
		{Op: iommu.Op{Seq: 2, End: 1}, epoch: 2}, {Op: iommu.Op{Seq: 4, End: 1}, epoch: 4}, {Op: iommu.Op{Seq: 1, End: 1}, epoch: 1},
	}, ended)
	require.Equal(t, []endedOp{{Op: iommu.Op{Seq: 3}, epoch: 3}}, open)
	require.Zero(t, dropped)
	r.Ended(iommu.Op{Seq: 3, End: 2}, nil)
	require.Len(t, ended, 3, "what was taken is the taker's")
	ended, open, _ = r.take()
	require.Equal(t, []endedOp{{Op: iommu.Op{Seq: 3, End: 2}, epoch: 3}}, ended)
	require.Empty(t, open)
	ended, _, _ = r.take()
	require.Empty(t, ended)
}

// The domain waits for a lock only, and never for an allocation.
func TestOpRecorderAllocatesNothing(t *testing.T) {
	r := &opRecorder{}
	seq := uint64(0)
	one := func() {
		seq++
		r.Began(iommu.Op{Seq: seq})
		r.Ended(iommu.Op{Seq: seq}, nil)
	}
	one()
	r.take()
	require.Zero(t, testing.AllocsPerRun(minOps-2, one))
}
