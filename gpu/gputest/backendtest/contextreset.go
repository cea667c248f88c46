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
	{name: "NeedsHoldsBack", run: testNeeds, needs: []string{needsHold, needsNeeds}},
}

func (d *device) resetContext(c *backend.Context) {
	d.t.Helper()
	ctx, stop := context.WithTimeout(d.t.Context(), patience)
	defer stop()
	require.NoError(d.t, d.Backend.(backend.ContextResetter).ResetContext(ctx, c))
}

// What a context has ends without a word, also the job that runs; others do not notice.
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

// What needs a job that does not end ok is never begun, and what needs that neither.
func testNeeds(t *testing.T, d *device) {
	s := d.span(make([]byte, 64))
	hold := d.hold(t)
	first, second, third, free := d.fill(s, 1), d.fill(s, 2), d.fill(s, 3), d.fill(s, 4)
	first.Needs, second.Needs, third.Needs = hold.ID, first.ID, second.ID
	for _, job := range []*backend.Job{hold, first, second, free} {
		require.NoError(t, d.Submit(job))
	}
	d.Cancel(hold.ID)
	dependent := outcome.Outcome{Kind: outcome.Cancelled, Cause: outcome.Dependency}
	require.Equal(t, dependent, d.sink.wait(t, first.ID).Outcome)
	require.Equal(t, dependent, d.sink.wait(t, second.ID).Outcome)
	require.Equal(t, outcome.Success, d.sink.wait(t, free.ID).Outcome)
	require.Equal(t, dependent, d.run(third), "it ended just before")
	fourth := d.fill(s, 5)
	fourth.Needs = third.ID
	require.Equal(t, dependent, d.run(fourth), "what was spoiled when it came spoils in turn")
	sameBytes(t, fillReference(4, 64), s.Host)
	next := d.fill(s, 6)
	next.Needs = free.ID
	require.Equal(t, outcome.Success, d.run(next))
	d.sink.onceEach(t)
}
