package backendtest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/outcome"
)

var contextTests = []test{
	{name: "OthersKeepTheirPlaces", run: testContextReset, needs: []string{needsHold, needsContexts}},
	{name: "SubmitAgain", run: testContextAgain, needs: []string{needsContexts}},
}

func (d *device) resetContext(c *backend.Context) {
	d.t.Helper()
	ctx, stop := context.WithTimeout(d.t.Context(), patience)
	defer stop()
	require.NoError(d.t, d.Backend.(backend.ContextResetter).ResetContext(ctx, c))
}

// The work of a context ends without a word, also the job that runs; others do not notice.
func testContextReset(t *testing.T, d *device) {
	var guilty, other backend.Context
	s, o := d.span(make([]byte, 64)), d.span(make([]byte, 64))
	hold := d.hold(t)
	hold.Context = &guilty
	behind, beside, last := d.fill(s, 1), d.fill(o, 2), d.fill(o, 3)
	behind.Context, beside.Context, last.Context = &guilty, &other, &other
	for _, job := range []*backend.Job{hold, beside, behind, last} {
		require.NoError(t, d.Submit(job))
	}
	d.resetContext(&guilty)
	require.Equal(t, outcome.Success, d.sink.wait(t, beside.ID).Outcome)
	require.Equal(t, outcome.Success, d.sink.wait(t, last.ID).Outcome)
	require.Equal(t, []backend.JobID{beside.ID, last.ID}, d.sink.ids(), "in order, and nothing else is told")
	sameBytes(t, make([]byte, 64), s.Host)
	sameBytes(t, fillReference(3, 64), o.Host)
	d.sink.onceEach(t)
}

// A context can be used again, and a reset of one that has nothing changes nothing.
func testContextAgain(t *testing.T, d *device) {
	var c backend.Context
	d.resetContext(&c)
	s := d.span(make([]byte, 64))
	job := d.fill(s, 1)
	job.Context = &c
	require.Equal(t, outcome.Success, d.run(job))
	d.resetContext(&c)
	again := d.fill(s, 2)
	again.Context = &c
	require.Equal(t, outcome.Success, d.run(again))
	sameBytes(t, fillReference(2, 64), s.Host)
}
