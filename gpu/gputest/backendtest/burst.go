package backendtest

import (
	"bytes"
	"encoding/binary"
	"math"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/outcome"
)

// What a backend that is a Burster keeps to. It may leave any job to Submit, so the
// tests do what the core does: a burst, and what it leaves one by one.
var burstTests = []test{
	{name: "AsSubmit", run: testBurst, needs: []string{needsBursts}},
	{name: "Programs", run: testBurstPrograms, needs: []string{needsBursts, "vecadd_f32"}},
	{name: "Unfit", run: testUnfit, needs: []string{needsBursts}},
	{name: "TrapEndsItsContext", run: testBurstTraps, needs: []string{needsBursts, needsAnyMemory}},
	{name: "OnlyWhenIdle", run: testBurstIdle, needs: []string{needsBursts, needsHold}},
	{name: "ResetAndClose", run: testBurstReset, needs: []string{needsBursts}},
	{name: "ResetBeside", run: testBurstBeside, needs: []string{needsBursts}},
}

// burst runs jobs to their ends and returns those.
func (d *device) burst(jobs ...*backend.Job) []backend.End {
	d.t.Helper()
	b := d.Backend.(backend.Burster)
	var ready []backend.Ready
	ends, done := make([]backend.End, len(jobs)), 0
	for i, job := range jobs {
		r, nanos, ok := b.Prepare(job, nil)
		if ok {
			require.Positive(d.t, nanos)
			require.LessOrEqual(d.t, nanos, int64(backend.MaxBurstJob))
			ready = append(ready, r)
		}
		if ok && i < len(jobs)-1 && len(ready) < 64 {
			continue
		}
		for len(ready) > 0 {
			n := b.Burst(jobs[done].ID, ready, ends[done:])
			require.LessOrEqual(d.t, n, len(ready))
			for _, end := range ends[done : done+n] {
				require.GreaterOrEqual(d.t, end.DeviceTime, 0*end.DeviceTime)
			}
			ready, done = ready[n:], done+n
			if len(ready) > 0 {
				ends[done].Outcome = d.runAgain(jobs[done])
				ready, done = ready[1:], done+1
			}
		}
		if !ok {
			ends[done].Outcome = d.runAgain(job)
			done++
		}
	}
	return ends
}

// runAgain runs a job whose id may have been used.
func (d *device) runAgain(job *backend.Job) outcome.Outcome {
	d.t.Helper()
	job.ID = d.id()
	return d.run(job)
}

func testBurst(t *testing.T, d *device) {
	const size = 256
	a, b := d.span(make([]byte, size)), d.span(make([]byte, size))
	half := backend.Span{Host: a.Host[size/2:], IOVA: a.IOVA + size/2}
	for round := range uint32(d.rounds(20)) {
		jobs := []*backend.Job{d.fill(a, round), d.fill(half, round+100)}
		jobs = append(jobs,
			&backend.Job{ID: d.id(), Op: backend.OpCopy, Spans: []backend.Span{b, a}},
			d.fill(a, round+7))
		for range round { // more than one group
			jobs = append(jobs, d.fill(half, round+8))
		}
		for _, end := range d.burst(jobs...) {
			require.Equal(t, outcome.Success, end.Outcome)
		}
		sameBytes(t, append(fillReference(round, size/2), fillReference(round+100, size/2)...), b.Host)
		want := fillReference(round+7, size)
		if round > 0 {
			copy(want[size/2:], fillReference(round+8, size/2))
		}
		sameBytes(t, want, a.Host)
	}
	empty := d.fill(backend.Span{Host: a.Host[:0], IOVA: a.IOVA}, 3)
	require.Equal(t, outcome.Success, d.burst(empty)[0].Outcome)
	d.sink.onceEach(t)
}

// One Ready may be in a burst many times, and be told anew what it is.
func testBurstPrograms(t *testing.T, d *device) {
	b := d.Backend.(backend.Burster)
	p := d.program(t, "vecadd_f32")
	x, y, z := d.span(floats(1, 2, 3, 4)), d.span(floats(10, 20, 30, 40)), d.span(make([]byte, 16))
	job := d.launch(p, nil, x, y, z)
	for _, end := range d.burst(job, job, job) {
		require.Equal(t, outcome.Success, end.Outcome)
	}
	sameBytes(t, floats(11, 22, 33, 44), z.Host)
	r, _, ok := b.Prepare(job, nil)
	if !ok {
		return // such launches are not for its bursts
	}
	// z = z + y, three times over.
	copy(z.Host, x.Host)
	again := d.launch(p, nil, z, y, z)
	r, _, ok = b.Prepare(again, r)
	require.True(t, ok)
	ends := make([]backend.End, 3)
	n := b.Burst(d.lastID+1, []backend.Ready{r, r, r}, ends)
	d.lastID += 3
	for range ends[n:] {
		again.ID = d.id()
		require.Equal(t, outcome.Success, d.run(again))
	}
	sameBytes(t, floats(31, 62, 93, 124), z.Host)
}

// What Submit would refuse, what is watched and what has no bound is not fit.
func testUnfit(t *testing.T, d *device) {
	s := d.span(make([]byte, 64))
	short := backend.Span{Host: s.Host[:32], IOVA: s.IOVA}
	p := d.simple(t)
	var spans []backend.Span
	for range p.Info().Bindings {
		spans = append(spans, s)
	}
	checked := d.launch(p, make([]byte, p.Info().InlineBytes), spans...)
	checked.Check = true
	grid := d.launch(p, make([]byte, p.Info().InlineBytes), spans...)
	grid.Grid.X = 0
	held := d.hold(t)
	for name, job := range map[string]*backend.Job{
		"nil":            nil,
		"no op":          {Spans: []backend.Span{s}},
		"copy unequal":   {Op: backend.OpCopy, Spans: []backend.Span{s, short}},
		"no program":     {Op: backend.OpLaunch, Spans: []backend.Span{s}, Grid: backend.Dim3{X: 1, Y: 1, Z: 1}, Block: backend.Dim3{X: 1, Y: 1, Z: 1}},
		"list":           {Op: backend.OpList, List: []backend.Job{{Op: backend.OpFill, Spans: []backend.Span{s}}}},
		"checked":        checked,
		"no workgroup":   grid,
		"does not end":   held,
		"not prepared":   nil,
		"foreign launch": {Op: backend.OpLaunch, Program: foreign{}, Spans: []backend.Span{s}, Grid: backend.Dim3{X: 1, Y: 1, Z: 1}, Block: backend.Dim3{X: 1, Y: 1, Z: 1}},
	} {
		r, nanos, ok := d.Backend.(backend.Burster).Prepare(job, nil)
		require.False(t, ok, name)
		require.Nil(t, r, name)
		require.Zero(t, nanos, name)
	}
	// A Ready of nobody's is left alone.
	require.Zero(t, d.Backend.(backend.Burster).Burst(d.id(), []backend.Ready{nil, 7}, make([]backend.End, 2)))
}

func floats(values ...float32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// Memory that a client took away is a trap, which ends its context and no other.
func testBurstTraps(t *testing.T, d *device) {
	const size = 8192
	gone, fine := vanishing(t, d, size, 4096), d.span(make([]byte, size))
	var guilty, other backend.Context
	jobs := []*backend.Job{
		d.fill(fine, 1),
		d.fill(gone, 2),
		d.fill(fine, 3),
		d.fill(fine, 4),
		{ID: d.id(), Op: backend.OpCopy, Spans: []backend.Span{fine, gone}},
		d.fill(fine, 5),
	}
	for i, c := range []*backend.Context{&guilty, &guilty, &guilty, &other, nil, &other} {
		jobs[i].Context = c
	}
	ends := d.burst(jobs...)
	require.Equal(t, outcome.Success, ends[0].Outcome)
	require.Equal(t, trapped(outcome.MemoryGone, 0, 4096, 0, 0), ends[1].Outcome)
	require.Equal(t, cancelled, ends[2].Outcome)
	require.Equal(t, outcome.Success, ends[3].Outcome)
	got := ends[4].Outcome.Trap // which of the bytes that are gone is the copy's to choose
	require.Equal(t, trapped(outcome.MemoryGone, 1, got.Offset, 0, 0), ends[4].Outcome)
	require.GreaterOrEqual(t, got.Offset, uint64(4096))
	require.Equal(t, outcome.Success, ends[5].Outcome)
	require.True(t, guilty.Trapped())
	require.False(t, other.Trapped())
	sameBytes(t, fillReference(5, size), fine.Host)
	sameBytes(t, fillReference(2, 4096), gone.Host[:4096])
	require.Equal(t, cancelled, d.burst(jobs[0])[0].Outcome)
}

func testBurstIdle(t *testing.T, d *device) {
	s := d.span(make([]byte, 64))
	job := d.fill(s, 1)
	hold := d.spin(t)
	if r, _, ok := d.Backend.(backend.Burster).Prepare(job, nil); ok {
		require.Zero(t, d.Backend.(backend.Burster).Burst(job.ID, []backend.Ready{r}, make([]backend.End, 1)))
	}
	sameBytes(t, make([]byte, 64), s.Host)
	d.Cancel(hold.ID)
	d.sink.wait(t, hold.ID)
	require.Equal(t, outcome.Success, d.burst(job)[0].Outcome)
	sameBytes(t, fillReference(1, 64), s.Host)
}

func testBurstReset(t *testing.T, d *device) {
	b := d.Backend.(backend.Burster)
	s := d.span(make([]byte, 64))
	job := d.fill(s, 1)
	require.Equal(t, outcome.Success, d.burst(job)[0].Outcome)
	d.reset()
	job.ID = d.id()
	require.Equal(t, outcome.Success, d.burst(job)[0].Outcome)
	r, _, ok := b.Prepare(job, nil)
	require.NoError(t, d.Close())
	if ok {
		clear(s.Host)
		require.Zero(t, b.Burst(d.id(), []backend.Ready{r}, make([]backend.End, 1)))
		sameBytes(t, make([]byte, 64), s.Host)
	}
}

// While a Reset waits, bursts go on or are refused; when it has returned the device
// touches nothing of theirs, nor after Close.
func testBurstBeside(t *testing.T, d *device) {
	b := d.Backend.(backend.Burster)
	s := d.watched(4096)
	r, _, ok := b.Prepare(d.fill(s, 0x01010101), nil)
	if !ok {
		t.Skip("its bursts take no fills of 4 KiB")
	}
	d.besideResets(t, s, "bursts", func(over *atomic.Bool) {
		ends, id := make([]backend.End, 32), backend.JobID(1000)
		jobs := make([]backend.Ready, len(ends))
		for i := range jobs {
			jobs[i] = r
		}
		for !over.Load() {
			n := b.Burst(id, jobs, ends)
			id += backend.JobID(n)
			for _, end := range ends[:n] {
				if end.Outcome != outcome.Success {
					t.Errorf("a burst beside a reset ended %v", end.Outcome)
					return
				}
			}
		}
	})
}

// besideResets runs work that fills s, until over, beside resets and a Close: after that
// s is left alone, and the sink has been told nothing.
func (d *device) besideResets(t *testing.T, s backend.Span, what string, work func(over *atomic.Bool)) {
	t.Helper()
	var over atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() { work(&over) })
	for range d.rounds(200) {
		d.Cancel(1005)
		d.reset()
	}
	require.NoError(t, d.Close())
	for i := range s.Host {
		s.Host[i] = 0xee
	}
	over.Store(true)
	wg.Wait()
	require.True(t, bytes.Equal(bytes.Repeat([]byte{0xee}, len(s.Host)), s.Host))
	require.Empty(t, d.sink.ids(), what+" say nothing to the sink")
}
