package mock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/program/native"
)

// listOf is a list of entries that are fit.
func listOf(t *testing.T, d *Device, id backend.JobID, entries ...*backend.Job) *backend.Job {
	t.Helper()
	job := &backend.Job{ID: id, Op: backend.OpList, List: make([]backend.Job, len(entries))}
	for i, e := range entries {
		job.List[i] = *e
		job.List[i].ID = 0
		job.List[i].Ready = prepared(t, d, &job.List[i])
	}
	return job
}

// slowLaunch takes so long and says that it takes a nanosecond.
func slowLaunch(t *testing.T, d *Device, takes time.Duration, runs *int) *backend.Job {
	span := backend.Span{Host: make([]byte, 64)}
	return &backend.Job{Op: backend.OpLaunch, Grid: one(), Block: one(), Spans: []backend.Span{span, span}, Program: copyWith(t, d, native.Body{
		Items: func(*native.Call) (uint64, bool) { return 1, true },
		Nanos: func(*native.Call) (uint64, bool) { return 1, true },
		Run: func(*native.Call, uint64, uint64) bool {
			for began := time.Now(); time.Since(began) < takes; {
			}
			*runs++
			return true
		},
	})}
}

// A slice that is kept longer than it may be ends with the group of entries that it is at.
func TestSlicesAreBounded(t *testing.T) {
	d, _ := liveDevice(t, Options{})
	runs := 0
	entries := []*backend.Job{slowLaunch(t, d, 300*time.Microsecond, &runs)}
	for len(entries) < 3*sliceGroup {
		entries = append(entries, fillJob(make([]byte, 64), 1))
	}
	job := listOf(t, d, 1, entries...)
	n, end := d.BurstList(job, 0, 100*time.Microsecond)
	require.Equal(t, sliceGroup, n)
	require.Equal(t, outcome.Success, end.Outcome)
	require.GreaterOrEqual(t, end.DeviceTime, 300*time.Microsecond)
	n, end = d.BurstList(job, n, time.Minute)
	require.Equal(t, 2*sliceGroup, n)
	require.Equal(t, outcome.Success, end.Outcome)
}

// An entry that always takes far longer than expected goes by Submit, for a while.
func TestSlowEntriesRest(t *testing.T) {
	d, _ := liveDevice(t, Options{})
	runs := 0
	job := listOf(t, d, 1, fillJob(make([]byte, 64), 1), slowLaunch(t, d, 2*slowNanos, &runs))
	for range slowTimes {
		n, _ := d.BurstList(job, 1, time.Minute)
		require.Equal(t, 1, n)
	}
	for range slowRest - 1 {
		n, _ := d.BurstList(job, 0, time.Minute)
		require.Equal(t, 1, n, "all before it")
		_, end := d.BurstList(job, 1, time.Minute)
		require.Zero(t, end)
		job.List[1].Ready.(*ready).rest-- // it was asked twice
	}
	require.Equal(t, slowTimes, runs)
	job.List[1].Ready.(*ready).rest = slowRest
	n, _ := d.BurstList(job, 1, time.Minute)
	require.Equal(t, 1, n, "once more")

	// What is slow now and then is not slow.
	r := job.List[0].Ready.(*ready)
	for try := 0; try == 0 || r.slow > 0; try++ { // the host may be what is slow
		require.Less(t, try, 100)
		r.slow, r.rest = slowTimes-1, 0
		n, _ = d.BurstList(job, 0, time.Minute)
		require.Equal(t, 1, n)
	}
}

// A bug costs as much as on the engine.
func TestBugsInSlices(t *testing.T) {
	for name, o := range map[string]Options{"quiet": {}, "log": {LogEntries: 16}} {
		t.Run(name, func(t *testing.T) {
			d, told := liveDevice(t, o)
			mem := make([]byte, 64)
			span := backend.Span{Host: mem}
			launch := &backend.Job{Op: backend.OpLaunch, Grid: one(), Block: one(), Spans: []backend.Span{span, span}, Program: copyWith(t, d, native.Body{
				Items: func(*native.Call) (uint64, bool) { return 1, true },
				Nanos: func(*native.Call) (uint64, bool) { return 1, true },
				Run:   func(*native.Call, uint64, uint64) bool { return bug() },
			})}
			n, end := d.BurstList(listOf(t, d, 1, fillJob(mem, 1), launch, fillJob(mem, 2)), 0, time.Minute)
			require.Equal(t, 2, n)
			require.Equal(t, deviceError, end.Outcome)
			require.EqualValues(t, 1, mem[0])

			// A copy that is none: the device itself is broken.
			job := listOf(t, d, 2, fillJob(mem, 3), fillJob(mem, 4))
			job.List[1].Ready = &ready{dev: d, job: &job.List[1], how: readyCopy}
			n, end = d.BurstList(job, 0, time.Minute)
			require.Equal(t, 1, n)
			require.Equal(t, outcome.Success, end.Outcome)
			require.Equal(t, "gone", <-told)
			n, end = d.BurstList(job, 1, time.Minute)
			require.Zero(t, n)
			require.Zero(t, end)
			require.ErrorIs(t, d.Submit(fillJob(mem, 1)), gpuerr.DeviceLost)
		})
	}
}

// A slice is in the log as a job is, and is none for a fault of the script.
func TestSlicesAreWatched(t *testing.T) {
	d, told := liveDevice(t, Options{LogEntries: 16, Script: Script{Faults: []Fault{{Kind: FaultErrorCompletion, Match: func(j *backend.Job) bool { return j.ID == 9 }}}}})
	a, b := make([]byte, 64), make([]byte, 32)
	job := listOf(t, d, 5, fillJob(a, 1), fillJob(b, 2))
	n, end := d.BurstList(job, 0, time.Minute)
	require.Equal(t, 2, n)
	require.Equal(t, outcome.Success, end.Outcome)
	job.ID = 9
	n, end = d.BurstList(job, 0, time.Minute)
	require.Zero(t, n)
	require.Zero(t, end)
	require.NoError(t, d.Submit(job))
	<-told
	log, _ := d.Log()
	require.Len(t, log, 2)
	require.EqualValues(t, 5, log[0].ID)
	require.EqualValues(t, 1, log[0].Ordinal)
	require.Equal(t, backend.OpList, log[0].Op)
	require.Equal(t, Finished, log[0].End)
	require.EqualValues(t, 96, log[0].Bytes)
	require.EqualValues(t, 2, log[1].Ordinal)
	require.Equal(t, FaultErrorCompletion, log[1].Fault)
}
