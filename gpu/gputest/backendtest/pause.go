package backendtest

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/outcome"
)

// What a backend that is a Pauser keeps to.
var pauseTests = []test{
	{name: "StandsStill", run: testPause, needs: []string{needsHold, needsPauses}},
	{name: "Idle", run: testPauseIdle, needs: []string{needsPauses}},
	{name: "CancelAndReset", run: testPauseEnds, needs: []string{needsHold, needsPauses, needsContexts}},
	{name: "TakenBack", run: testPauseTakenBack, needs: []string{needsPauses}},
}

// pause returns when the device stands still.
func (d *device) pause() {
	d.t.Helper()
	still := make(chan struct{})
	d.Backend.(backend.Pauser).Pause(func() { close(still) })
	select {
	case <-still:
	case <-time.After(patience):
		require.FailNow(d.t, "the device does not stand still")
	}
}

func (d *device) resume() { d.Backend.(backend.Pauser).Resume() }

// quick runs a fill in a burst; where the device leaves it to Submit it says false.
func (d *device) quick(job *backend.Job) bool {
	d.t.Helper()
	b := d.Backend.(backend.Burster)
	r, _, ok := b.Prepare(job, nil)
	if !ok {
		return false
	}
	var ends [1]backend.End
	if b.Burst(job.ID, []backend.Ready{r}, ends[:]) == 0 {
		return false
	}
	require.Equal(d.t, outcome.Success, ends[0].Outcome)
	return true
}

// What runs keeps its place, what waits is not begun, bursts run, and the time does not go on.
func testPause(t *testing.T, d *device) {
	s, o := d.span(make([]byte, 64)), d.span(make([]byte, 64))
	hold := d.spin(t)
	behind := d.fill(s, 1)
	require.NoError(t, d.Submit(behind))
	require.False(t, d.quick(d.fill(o, 9)), "not beside what runs")
	var bursts int
	for round := range uint32(d.rounds(20)) {
		d.pause()
		if d.quick(d.fill(o, round+1)) {
			bursts++
			sameBytes(t, fillReference(round+1, 64), o.Host)
		}
		sameBytes(t, make([]byte, 64), s.Host)
		d.resume()
	}
	require.Empty(t, d.sink.ids())
	d.pause()
	later := d.fill(s, 2)
	require.NoError(t, d.Submit(later), "it is taken")
	d.resume()
	d.Cancel(hold.ID)
	require.Equal(t, outcome.Cancelled, d.sink.wait(t, hold.ID).Outcome.Kind)
	require.Equal(t, outcome.Success, d.sink.wait(t, behind.ID).Outcome)
	require.Equal(t, outcome.Success, d.sink.wait(t, later.ID).Outcome)
	require.ElementsMatch(t, []backend.JobID{hold.ID, behind.ID, later.ID}, d.sink.ids())
	t.Logf("%d bursts in pauses", bursts)
	d.sink.onceEach(t)
}

// A device that has nothing to do stands still at once, and begins nothing until it goes on.
func testPauseIdle(t *testing.T, d *device) {
	s := d.span(make([]byte, 64))
	d.pause()
	job := d.fill(s, 1)
	require.NoError(t, d.Submit(job))
	d.quick(d.fill(d.span(make([]byte, 64)), 2))
	sameBytes(t, make([]byte, 64), s.Host)
	require.Empty(t, d.sink.ids())
	d.resume()
	require.Equal(t, outcome.Success, d.sink.wait(t, job.ID).Outcome)
	sameBytes(t, fillReference(1, 64), s.Host)
}

// What is ended in a pause ends in it; what is behind that is begun after it.
func testPauseEnds(t *testing.T, d *device) {
	s := d.span(make([]byte, 64))
	hold := d.spin(t)
	behind := d.fill(s, 1)
	require.NoError(t, d.Submit(behind))
	d.pause()
	d.Cancel(hold.ID)
	require.Equal(t, outcome.Cancelled, d.sink.wait(t, hold.ID).Outcome.Kind)
	sameBytes(t, make([]byte, 64), s.Host)
	d.resume()
	require.Equal(t, outcome.Success, d.sink.wait(t, behind.ID).Outcome)

	var c backend.Context
	hold = d.hold(t)
	hold.Context = &c
	require.NoError(t, d.Submit(hold))
	d.pause()
	d.resetContext(&c)
	d.resume()
	d.spin(t)
	d.pause()
	d.reset()
	d.resume()
	require.Equal(t, outcome.Success, d.run(d.fill(s, 2)))
	sameBytes(t, fillReference(2, 64), s.Host)
	d.spin(t)
	d.pause()
	require.NoError(t, d.Close(), "also while it stands still")
	d.resume()
	d.sink.onceEach(t)
}

// A pause may be taken back at any moment, beside work of all kinds.
func testPauseTakenBack(t *testing.T, d *device) {
	p := d.Backend.(backend.Pauser)
	s := d.span(make([]byte, d.most(1<<20)))
	var told atomic.Int64
	for round := range uint32(d.rounds(200)) {
		job := d.fill(s, round)
		require.NoError(t, d.Submit(job))
		p.Pause(func() { told.Add(1) })
		p.Resume()
		require.Equal(t, outcome.Success, d.sink.wait(t, job.ID).Outcome)
		sameBytes(t, fillReference(round, len(s.Host)), s.Host)
	}
	t.Logf("stood still %d times", told.Load())
	d.sink.onceEach(t)
}
