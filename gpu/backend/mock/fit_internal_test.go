package mock

import (
	"context"
	"encoding/binary"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpu/backend"
	"capgpu/outcome"
)

// What bursts take, and what they leave.
func TestFit(t *testing.T) {
	quick, _ := liveDevice(t, Options{})
	lanes, _ := liveDevice(t, Options{LaneOnly: true})
	span := func(n int) backend.Span { return backend.Span{Host: make([]byte, n)} }
	launch := func(d *Device, name string, inline []uint32, spans ...backend.Span) *backend.Job {
		p, err := d.Builtin(name)
		require.NoError(t, err)
		j := &backend.Job{Op: backend.OpLaunch, Program: p, Grid: one(), Block: p.Info().Block, Spans: spans}
		for _, v := range inline {
			j.Inline = binary.LittleEndian.AppendUint32(j.Inline, v)
		}
		return j
	}
	move := func(op backend.Op, spans ...backend.Span) *backend.Job { return &backend.Job{Op: op, Spans: spans} }
	steady := func(d *Device, groups uint32) *backend.Job {
		p := steadyProgram(t, d)
		return &backend.Job{Op: backend.OpLaunch, Program: p, Grid: backend.Dim3{X: groups, Y: 1, Z: 1}, Block: p.Info().Block, Inline: make([]byte, 4), Spans: []backend.Span{span(64), span(64)}}
	}
	odd := span(65)
	small, large := span(64), span(4<<20)
	for name, c := range map[string]struct {
		d    *Device
		job  *backend.Job
		want bool
	}{
		"fill":              {quick, move(backend.OpFill, span(64<<10)), true},
		"large fill":        {quick, move(backend.OpFill, span(64<<10+4)), false},
		"odd fill":          {quick, move(backend.OpFill, odd), false},
		"fill of nothing":   {quick, move(backend.OpFill, span(0)), true},
		"copy":              {quick, move(backend.OpCopy, span(64<<10), span(64<<10)), true},
		"large copy":        {quick, move(backend.OpCopy, span(64<<10+1), span(64<<10+1)), false},
		"body":              {quick, launch(quick, "vecadd_f32", nil, small, span(64), span(64)), true},
		"large body":        {quick, launch(quick, "vecadd_f32", nil, large, large, large), false},
		"unsteady body":     {quick, launch(quick, "topk_f32", []uint32{1}, small, span(64), span(64)), false},
		"misaligned":        {quick, launch(quick, "vecadd_f32", nil, backend.Span{Host: odd.Host[1:]}, small, span(64)), false},
		"loops":             {lanes, launch(lanes, "vecadd_f32", nil, small, span(64), span(64)), false},
		"spins":             {lanes, launch(lanes, "spin", nil), false},
		"lanes":             {quick, steady(quick, 3), true},
		"many workgroups":   {quick, steady(quick, 60_000), false},
		"a program of none": {quick, launch(lanes, "vecadd_f32", nil, small), false},
	} {
		r, nanos, ok := c.d.Prepare(c.job, nil)
		require.Equal(t, c.want, ok, name)
		require.Equal(t, c.want, r != nil, name)
		require.Equal(t, c.want, nanos > 0, name)
	}
}

// A workgroup of the lane engine that meets memory that has gone is named.
func TestMemoryGoneUnderLanes(t *testing.T) {
	d, told := liveDevice(t, Options{})
	host, err := unix.Mmap(-1, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(host)) })
	p := steadyProgram(t, d)
	var guilty backend.Context
	job := &backend.Job{
		ID: 1, Op: backend.OpLaunch, Program: p, Grid: backend.Dim3{X: 5, Y: 1, Z: 1}, Block: p.Info().Block, Context: &guilty,
		Inline: make([]byte, 4), Spans: []backend.Span{{Host: host[4096-3*256 : 4096+2*256]}, {Host: make([]byte, 5*256)}},
	}
	require.NoError(t, d.Submit(job))
	require.Equal(t, "ok", <-told)
	require.NoError(t, unix.Mprotect(host[4096:], unix.PROT_NONE))
	r, ends := prepared(t, d, job), make([]backend.End, 1)
	require.Equal(t, 1, d.Burst(1, []backend.Ready{r}, ends))
	require.Equal(t, trapped(outcome.Trap{Kind: outcome.MemoryGone, Workgroup: 3, Offset: 3 * 256}), ends[0].Outcome)
	require.True(t, guilty.Trapped())
	// The worker may be used again.
	require.NoError(t, unix.Mprotect(host[4096:], unix.PROT_READ))
	job.Context = nil
	require.Equal(t, 1, d.Burst(1, []backend.Ready{r}, ends))
	require.Equal(t, outcome.Success, ends[0].Outcome)
}

// While a job runs, or a reset waits for the sink, there are no bursts; a fault that
// is used up stands in no one's way.
func TestNoBurstBeside(t *testing.T) {
	d, told := liveDevice(t, Options{Script: Script{Faults: []Fault{{Kind: FaultErrorCompletion, Times: 1}}}})
	mem, ends := make([]byte, 64), make([]backend.End, 1)
	jobs := []backend.Ready{prepared(t, d, fillJob(mem, 1))}
	require.Zero(t, d.Burst(1, jobs, ends))
	require.NoError(t, d.Submit(fillJob(mem, 1)))
	require.Equal(t, deviceError.String(), <-told)
	burst := func() int {
		for d.busy() {
			runtime.Gosched()
		}
		return d.Burst(1, jobs, ends)
	}
	require.Equal(t, 1, burst())
	spin, err := d.Builtin("spin")
	require.NoError(t, err)
	require.NoError(t, d.Submit(&backend.Job{ID: 2, Op: backend.OpLaunch, Program: spin, Grid: one(), Block: spin.Info().Block}))
	for !d.runs() {
		runtime.Gosched()
	}
	require.Zero(t, d.Burst(1, jobs, ends))
	d.Cancel(2)
	require.Equal(t, "cancelled", <-told)
	require.Equal(t, 1, burst())
}

func (d *Device) busy() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.idleLocked()
}

func (d *Device) runs() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.running != nil
}

func TestNoBurstDuringReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := New(Options{})
		require.NoError(t, err)
		s := make(sinkOf) // it blocks
		require.NoError(t, d.Start(s))
		mem, ends := make([]byte, 64), make([]backend.End, 1)
		jobs := []backend.Ready{prepared(t, d, fillJob(mem, 1))}
		require.NoError(t, d.Submit(fillJob(mem, 2)))
		synctest.Wait()
		require.Equal(t, 1, d.Burst(1, jobs, ends), "that the sink is being told is no matter")
		done := make(chan error)
		go func() { done <- d.Reset(context.Background()) }()
		synctest.Wait()
		require.Zero(t, d.Burst(1, jobs, ends))
		require.Equal(t, "ok", <-s)
		require.NoError(t, <-done)
		require.Equal(t, 1, d.Burst(1, jobs, ends))
		require.NoError(t, d.Close())
	})
}
