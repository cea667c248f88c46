package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/engine"
	"capgpu/gpu/backend/engine/enginetest"
	"capgpu/gpu/backend/engine/host/lanedevice"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// TestFaults: a process that misbehaves costs its group the job that it had; the next one works.
func TestFaults(t *testing.T) {
	for _, fault := range lanedevice.Faults[1:] {
		t.Run(string(fault), func(t *testing.T) {
			at, bound := "--at=7", patience // behind the self-test and a job
			if fault == lanedevice.Stuck {
				at, bound = "--at=2", 300*time.Millisecond
			}
			m := enginetest.NewMapping(t, enginetest.Start(t, 4, func(n int) []string {
				if n != 1 {
					return nil
				}
				return []string{"--fault=" + string(fault), at}
			}), engine.Options{AnswerBound: bound})
			e := newEnds(t)
			require.NoError(t, m.Start(e))
			defer func() { require.NoError(t, m.Close()) }()

			p, err := m.Builtin("fill_u32")
			require.NoError(t, err)
			s := m.Alloc(t, 4096)
			job := func(id backend.JobID, c *backend.Context) *backend.Job {
				return &backend.Job{
					ID: id, Op: backend.OpLaunch, Program: p, Spans: []backend.Span{s}, Inline: []byte{1, 2, 3, 4}, Context: c,
					Grid: backend.Dim3{X: 4, Y: 1, Z: 1}, Block: p.Info().Block,
				}
			}
			c := &backend.Context{Group: 1}
			if fault != lanedevice.Stuck { // then all is ready, and the next is sent at once
				require.NoError(t, m.Submit(job(9, c)))
				require.Equal(t, outcome.Success, e.of(9))
				delete(e.all, 9)
			}
			require.NoError(t, m.Submit(job(1, c)))
			if fault == lanedevice.Hang || fault == lanedevice.Silent {
				m.Cancel(1)
				require.NoError(t, m.ResetContext(context(), c))
				require.Empty(t, e.all)
			} else {
				require.Equal(t, deviceError, e.of(1))
			}
			require.NoError(t, m.Submit(job(2, c)))
			require.Equal(t, outcome.Success, e.of(2))
			require.Equal(t, byte(4), s.Host[4095])
		})
	}
}

// TestPlaces: where all places are taken an idle engine makes room, and its group's memory is
// imported again by the next; one that has memory of its own does not.
func TestPlaces(t *testing.T) {
	engines := enginetest.Start(t, 2, enginetest.Flags(enginetest.Local(1<<20)))
	m := enginetest.NewMapping(t, engines, engine.Options{})
	e := newEnds(t)
	require.NoError(t, m.Start(e))
	defer func() { require.NoError(t, m.Close()) }()

	id := backend.JobID(0)
	fill := func(c *backend.Context, s backend.Span, pattern uint32) {
		t.Helper()
		id++
		require.NoError(t, m.Submit(&backend.Job{ID: id, Op: backend.OpFill, Spans: []backend.Span{s}, Pattern: pattern, Context: c}))
		require.Equal(t, outcome.Success, e.of(id))
	}
	s := m.Alloc(t, 4096)
	var groups [3]*backend.Context
	for n := range 6 {
		g := n % 3
		if groups[g] == nil {
			groups[g] = &backend.Context{Group: uint32(g + 1)}
		}
		fill(groups[g], s, uint32(n))
		require.Equal(t, byte(n), s.Host[0])
	}

	for g := range 2 {
		b, err := m.Local(groups[g]).Alloc(t.Context(), 4096)
		require.NoError(t, err)
		defer func() { require.NoError(t, b.Free()) }()
		fill(groups[g], backend.Span{Host: b.Bytes(), IOVA: uint64(b.IOVA())}, 1)
	}
	_, err := m.Local(groups[2]).Alloc(t.Context(), 4096)
	require.ErrorIs(t, err, gpuerr.Busy)
	require.Empty(t, e.lost)
}
