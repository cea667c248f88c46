package backendtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/outcome"
)

var contextTests = []test{
	{name: "OthersKeepTheirPlaces", run: testContextReset, needs: []string{needsHold, needsContexts}},
	{name: "SubmitAgain", run: testContextAgain, needs: []string{needsContexts}},
	{name: "Preemption", run: testPreemption, needs: []string{needsHold, needsPreemption}},
}

func (d *device) resetContext(c *backend.Context) {
	d.t.Helper()
	ctx, stop := context.WithTimeout(d.t.Context(), patience)
	defer stop()
	require.NoError(d.t, d.Backend.(backend.ContextResetter).ResetContext(ctx, c))
}

// The work of a context ends without a word, also the job that runs; others do not notice.
func testContextReset(t *testing.T, d *device) {
	guilty, other := backend.Context{Group: 1}, backend.Context{Group: 2}
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

// Short work of one context does not wait for another's that does not end; it does for its
// own. The time of the long job is without that of the short.
func testPreemption(t *testing.T, d *device) {
	long, short := backend.Context{Group: 1}, backend.Context{Group: 2}
	s := d.span(make([]byte, 64))
	hold, behind, first, second := d.hold(t), d.fill(s, 1), d.fill(s, 2), d.fill(s, 3)
	hold.Context, behind.Context, first.Context, second.Context = &long, &long, &short, &short
	began := time.Now()
	for _, job := range []*backend.Job{hold, behind, first, second} {
		require.NoError(t, d.Submit(job))
	}
	for _, job := range []*backend.Job{first, second} {
		require.Equal(t, outcome.Success, d.sink.wait(t, job.ID).Outcome)
	}
	d.Cancel(hold.ID)
	c := d.sink.wait(t, hold.ID)
	require.Equal(t, cancelled, c.Outcome)
	preempted := d.Backend.(backend.Preempter).Preempted()
	require.Positive(t, preempted)
	require.LessOrEqual(t, c.DeviceTime+preempted, time.Since(began))
	require.Equal(t, outcome.Success, d.sink.wait(t, behind.ID).Outcome)
	require.Equal(t, []backend.JobID{first.ID, second.ID, hold.ID, behind.ID}, d.sink.ids())
	sameBytes(t, fillReference(1, 64), s.Host)
	d.sink.onceEach(t)
}
