package gpu

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/ring"
)

// A queue spins only while another processor is left that does not, if there is one.
func TestSpinnersLeaveAProcessor(t *testing.T) {
	r := newMemRig(t)
	s := r.open("alice")
	q, err := lookup[queue](s.handles, r.queue(s, 16, 64).h)
	require.NoError(t, err)
	looks := &looksRing{memRing: newMemRing(ring.Config{Entries: 16})}
	spinner := &queue{session: s, node: q.node, live: q.node.Watch(), ring: looks, jobs: make([]*job, 16), scratch: newScratch(0)}
	e := r.dev.engine
	for others := range int32(runtime.GOMAXPROCS(0)) {
		e.spinning.Add(others)
		before := looks.looks.Load()
		spinner.spin.rounds = 1
		again, err := spinner.spinForWork(new(int))
		require.NoError(t, err)
		require.False(t, again)
		require.Equal(t, others < max(1, int32(runtime.GOMAXPROCS(0))-1), looks.looks.Load() > before, "with %d others", others)
		e.spinning.Add(-others)
	}
}
