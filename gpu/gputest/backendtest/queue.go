package backendtest

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

var queueTests = []test{
	{name: "InOrder", run: testOrder, long: true},
	{name: "DepthIsMaxJobs", run: testDepth, needs: []string{needsHold}, long: true},
	{name: "DeviceTimeIsMeasured", run: testDeviceTime, needs: []string{needsHold}},
	{name: "CancelRunning", run: testCancelRunning, needs: []string{needsHold}},
	{name: "CancelLongKernel", run: testCancelKernel, needs: []string{"matvec_f32"}},
	{name: "CancelQueued", run: testCancelQueued, needs: []string{needsHold}},
	{name: "CancelUnknown", run: testCancelUnknown},
	{name: "SubmitFromCompletion", run: testReentrant, unstarted: true},
	{name: "ConcurrentSubmitAndCancel", run: testConcurrent},
	{name: "FailureEndsItsRound", run: testRounds, needs: []string{needsHold}},
}

var cancelled = outcome.Outcome{Kind: outcome.Cancelled}

// slack is what a busy host may add to a bound of the device.
const slack = 2 * time.Second

func (d *device) fill(s backend.Span, pattern uint32) *backend.Job {
	return &backend.Job{ID: d.id(), Op: backend.OpFill, Spans: []backend.Span{s}, Pattern: pattern}
}

// hold is a job that does not end by itself, or not soon.
func (d *device) hold(t *testing.T) *backend.Job {
	t.Helper()
	if n := d.Harness.HoldBytes; n > 0 {
		if d.held.Host == nil {
			d.held = d.span(make([]byte, n))
		}
		return d.fill(d.held, 0)
	}
	return d.launch(d.program(t, "spin"), nil)
}

// spin submits such a job.
func (d *device) spin(t *testing.T) *backend.Job {
	t.Helper()
	job := d.hold(t)
	require.NoError(t, d.Submit(job))
	return job
}

func testOrder(t *testing.T, d *device) {
	s := d.span(make([]byte, d.most(4096)))
	var want []backend.JobID
	for round := range d.rounds(50) {
		var last backend.JobID
		for i := range d.Info().Limits.MaxJobs {
			job := d.fill(s, uint32(round*1000+i))
			require.NoError(t, d.Submit(job))
			want = append(want, job.ID)
			last = job.ID
		}
		d.sink.wait(t, last)
		sameBytes(t, fillReference(uint32(round*1000+d.Info().Limits.MaxJobs-1), len(s.Host)), s.Host)
	}
	require.Equal(t, want, d.sink.ids())
	d.sink.onceEach(t)
}

func testDepth(t *testing.T, d *device) {
	first := d.spin(t)
	s := d.span(make([]byte, 64))
	var queued []*backend.Job
	for range d.Info().Limits.MaxJobs - 1 {
		job := d.fill(s, 1)
		require.NoError(t, d.Submit(job))
		queued = append(queued, job)
	}
	extra := d.fill(s, 2)
	require.ErrorIs(t, d.Submit(extra), gpuerr.QueueFull)
	d.Cancel(first.ID)
	for _, job := range queued {
		require.Equal(t, outcome.Success, d.sink.wait(t, job.ID).Outcome)
	}
	require.Equal(t, outcome.Success, d.run(extra), "the refused job may be submitted again")
	d.sink.onceEach(t)
}

func testDeviceTime(t *testing.T, d *device) {
	const spun = 30 * time.Millisecond
	for range 100 {
		job := d.spin(t)
		time.AfterFunc(spun, func() { d.Cancel(job.ID) })
		began := time.Now()
		c := d.sink.wait(t, job.ID)
		require.LessOrEqual(t, c.DeviceTime, time.Since(began)+spun)
		if c.DeviceTime > spun/2 {
			return
		}
		// The device was still compiling the program for a part of that.
	}
	t.Fatal("jobs that spin have hardly any device time")
}

func testCancelRunning(t *testing.T, d *device) {
	job := d.spin(t)
	next := d.fill(d.span(make([]byte, 64)), 1)
	require.NoError(t, d.Submit(next))
	began := time.Now()
	d.Cancel(job.ID)
	require.Equal(t, cancelled, d.sink.wait(t, job.ID).Outcome)
	require.Less(t, time.Since(began), d.Info().Limits.CancelBound+slack)
	require.Equal(t, outcome.Success, d.sink.wait(t, next.ID).Outcome, "only the cancelled job is stopped")
	d.Cancel(job.ID)
	d.sink.onceEach(t)
}

func testCancelKernel(t *testing.T, d *device) {
	p := d.program(t, "matvec_f32")
	// One row, so a device that looks for a cancel between rows only would miss it.
	const cols = 4 << 20
	m, y := d.span(make([]byte, 4*cols)), d.span(make([]byte, 4096))
	job := d.launch(p, words(1, cols), m, m, y)
	stopped := false
	for range d.rounds(50) {
		job.ID = d.id()
		require.NoError(t, d.Submit(job))
		d.Cancel(job.ID)
		began := time.Now()
		got := d.sink.wait(t, job.ID).Outcome
		require.Less(t, time.Since(began), d.Info().Limits.CancelBound+slack)
		require.Contains(t, []outcome.Kind{outcome.OK, outcome.Cancelled}, got.Kind)
		stopped = stopped || got.Kind == outcome.Cancelled
	}
	require.True(t, stopped, "50 cancels at once stopped nothing")
	d.sink.onceEach(t)
}

func testCancelQueued(t *testing.T, d *device) {
	first := d.spin(t)
	s := d.span(make([]byte, 64))
	a, b := d.fill(s, 0xaaaaaaaa), d.fill(s, 0xbbbbbbbb)
	require.NoError(t, d.Submit(a))
	require.NoError(t, d.Submit(b))
	d.Cancel(b.ID)
	d.Cancel(first.ID)
	require.Equal(t, outcome.Success, d.sink.wait(t, a.ID).Outcome)
	require.Equal(t, cancelled, d.sink.wait(t, b.ID).Outcome)
	sameBytes(t, fillReference(0xaaaaaaaa, 64), s.Host)
	d.sink.onceEach(t)
}

func testCancelUnknown(t *testing.T, d *device) {
	s := d.span(make([]byte, 64))
	job := d.fill(s, 1)
	d.Cancel(job.ID) // not submitted yet
	d.Cancel(0)
	d.Cancel(^backend.JobID(0))
	require.Equal(t, outcome.Success, d.run(job))
	d.Cancel(job.ID) // ended
	next := d.fill(s, 2)
	require.Equal(t, outcome.Success, d.run(next))
	require.Equal(t, []backend.JobID{job.ID, next.ID}, d.sink.ids())
}

func testConcurrent(t *testing.T, d *device) {
	const workers = 4
	each := d.rounds(100)
	s := d.span(make([]byte, d.most(64<<10)))
	var (
		next atomic.Uint64
		wg   sync.WaitGroup
		mu   sync.Mutex
		all  []backend.JobID
	)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	next.Store(1000)
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				job := &backend.Job{ID: backend.JobID(next.Add(1)), Op: backend.OpFill, Spans: []backend.Span{s}, Pattern: uint32(w)}
				for {
					_, changed := d.sink.look(job.ID)
					err := d.Submit(job)
					if err == nil {
						break
					}
					if gpuerr.CodeOf(err) != gpuerr.QueueFull {
						t.Errorf("Submit: %v", err)
						return
					}
					select {
					case <-changed:
					case <-ctx.Done():
						t.Error("the queue stays full")
						return
					}
				}
				if i%3 == 0 {
					d.Cancel(job.ID)
				}
				mu.Lock()
				all = append(all, job.ID)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for _, id := range all {
		got := d.sink.wait(t, id).Outcome.Kind
		require.Contains(t, []outcome.Kind{outcome.OK, outcome.Cancelled}, got)
	}
	slices.Sort(all)
	done := d.sink.ids()
	slices.Sort(done)
	require.Equal(t, all, done)
	d.sink.onceEach(t)
}

// After work of a context did not end ok, nothing more of that round is begun; work of the
// next round is.
func testRounds(t *testing.T, d *device) {
	s, other := d.span(make([]byte, 64)), d.span(make([]byte, 64))
	var guilty, innocent backend.Context
	hold := d.hold(t)
	late, next, beside := d.fill(s, 1), d.fill(s, 2), d.fill(other, 3)
	for job, in := range map[*backend.Job]*backend.Context{hold: &guilty, late: &guilty, next: &guilty, beside: &innocent} {
		job.Context, job.Round = in, 1
	}
	next.Round = 2
	for _, job := range []*backend.Job{hold, late, next, beside} {
		require.NoError(t, d.Submit(job))
	}
	for deadline := time.Now().Add(patience); len(d.sink.ids()) == 0; {
		d.Cancel(hold.ID)
		require.True(t, time.Now().Before(deadline))
	}
	if d.sink.wait(t, hold.ID).Outcome.Kind == outcome.OK {
		t.Skip("it was done before it could be stopped")
	}
	if guilty.Over(1) { // else it was stopped before it began
		require.Equal(t, cancelled, d.sink.wait(t, late.ID).Outcome)
	}
	require.Equal(t, outcome.Success, d.sink.wait(t, next.ID).Outcome)
	require.Equal(t, outcome.Success, d.sink.wait(t, beside.ID).Outcome)
	sameBytes(t, fillReference(2, 64), s.Host)
	require.False(t, innocent.Over(1))
	require.False(t, guilty.Over(2))
}
