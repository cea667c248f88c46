package engine_test

import (
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/engine"
	"capgpu/gpu/backend/engine/enginetest"
	"capgpu/outcome"
	"capgpu/program/library"
	"capgpu/program/library/librarytest"
)

// TestLibrary: every kernel of the library computes in an engine what its model does, and traps
// where it should. CAPGPU_LONG has more cases.
func TestLibrary(t *testing.T) {
	if raceEnabled {
		t.Skip("the work is another process's, which has no detector")
	}
	cases := 1
	if os.Getenv("CAPGPU_LONG") != "" {
		cases = 8
	}
	m := enginetest.NewMapping(t, enginetest.Start(t, 2, nil), engine.Options{})
	e := newEnds(t)
	require.NoError(t, m.Start(e))
	defer func() { require.NoError(t, m.Close()) }()
	require.Equal(t, library.Names(), m.Programs())

	const room = 64 << 20
	memory := m.Alloc(t, room)
	id := backend.JobID(0)
	for _, name := range library.Names() {
		p, err := m.Builtin(name)
		require.NoError(t, err)
		for _, c := range librarytest.Cases(name, rand.New(rand.NewPCG(7, 7)), cases) {
			id++
			got := c.Fresh()
			job := &backend.Job{ID: id, Op: backend.OpLaunch, Program: p, Grid: c.Natural(), Block: p.Info().Block, Inline: c.Inline, Context: &backend.Context{Group: 1}}
			at := 0
			for _, b := range got {
				require.Less(t, at+len(b), room)
				span := backend.Span{Host: memory.Host[at : at+len(b) : at+len(b)], IOVA: memory.IOVA + uint64(at)}
				copy(span.Host, b)
				job.Spans = append(job.Spans, span)
				at = (at + len(b) + 255) &^ 255
			}
			require.NoError(t, m.Submit(job), c.Name)
			how := e.of(id)
			if c.Traps {
				require.Equal(t, outcome.OutOfBounds, how.Trap.Kind, "%s: %v", c.Name, how)
				require.EqualValues(t, c.Trap, how.Trap.Binding, c.Name)
				continue
			}
			require.Equal(t, outcome.Success, how, c.Name)
			for i, s := range job.Spans {
				copy(got[i], s.Host)
			}
			require.NoError(t, c.Compare(got), c.Name)
		}
	}
	t.Logf("%d launches", id)
}
