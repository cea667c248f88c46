package backendtest

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/outcome"
)

// A backend that is a Runner keeps to these. It may leave any job to Submit, so the tests
// do what the core does: Run, and what it leaves one by one.
var runTests = []test{
	{name: "AsSubmit", run: testRun, needs: []string{needsRuns}},
	{name: "Programs", run: testRunPrograms, needs: []string{needsRuns, "vecadd_f32"}},
	{name: "Unfit", run: testUnfit, needs: []string{needsRuns}},
	{name: "TrapEndsItsContext", run: testRunTraps, needs: []string{needsRuns, needsAnyMemory}},
	{name: "Lists", run: testRunLists, needs: []string{needsRuns, needsLists}},
	{name: "ListEndsAtTrap", run: testRunListTraps, needs: []string{needsRuns, needsLists, needsAnyMemory}},
	{name: "OnlyWhenIdle", run: testRunIdle, needs: []string{needsRuns, needsHold}},
	{name: "ResetAndClose", run: testRunReset, needs: []string{needsRuns}},
	{name: "ResetBeside", run: testRunBeside, needs: []string{needsRuns}},
}

// runner is the backend.
func (d *device) runner() backend.Runner { return d.Backend.(backend.Runner) }

// prepare has the backend look at a job, which it may not be fit for.
func (d *device) prepare(job *backend.Job) (ok bool) {
	d.t.Helper()
	if job.Op == backend.OpList {
		return true
	}
	r, nanos, ok := d.runner().Prepare(job, nil)
	if job.Ready = nil; ok {
		require.Positive(d.t, nanos)
		require.LessOrEqual(d.t, nanos, int64(backend.MostRunnable))
		job.Ready = r
	}
	return ok
}

// runAll runs jobs to their ends and returns those.
func (d *device) runAll(jobs ...*backend.Job) []backend.End {
	d.t.Helper()
	ends := make([]backend.End, len(jobs))
	for done := 0; done < len(jobs); {
		last := done
		for last < len(jobs) && last < done+64 && d.prepare(jobs[last]) {
			last++
		}
		n := d.runner().Run(jobs[done:last], ends[done:last])
		require.LessOrEqual(d.t, n, last-done)
		for _, end := range ends[done : done+n] {
			require.GreaterOrEqual(d.t, end.DeviceTime, 0*end.DeviceTime)
		}
		if done += n; done == last && last < len(jobs) && jobs[last].Ready != nil || done == len(jobs) {
			continue
		}
		rest := *jobs[done]
		rest.ID, rest.From = d.id(), rest.From+ends[done].Begun
		require.NoError(d.t, d.Submit(&rest))
		c := d.sink.wait(d.t, rest.ID)
		ends[done].Outcome = c.Outcome
		ends[done].Begun += c.Begun
		done++
	}
	return ends
}

func testRun(t *testing.T, d *device) {
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
		for _, end := range d.runAll(jobs...) {
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
	require.Equal(t, outcome.Success, d.runAll(empty)[0].Outcome)
	d.sink.onceEach(t)
}

// One job may be run many times, and its Ready used again for another.
func testRunPrograms(t *testing.T, d *device) {
	p := d.program(t, "vecadd_f32")
	x, y, z := d.span(floats(1, 2, 3, 4)), d.span(floats(10, 20, 30, 40)), d.span(make([]byte, 16))
	job := d.launch(p, nil, x, y, z)
	for _, end := range d.runAll(job, job, job) {
		require.Equal(t, outcome.Success, end.Outcome)
	}
	sameBytes(t, floats(11, 22, 33, 44), z.Host)
	r, _, ok := d.runner().Prepare(job, nil)
	if !ok {
		return // it runs no such launches
	}
	// z = z + y, three times over.
	copy(z.Host, x.Host)
	again := d.launch(p, nil, z, y, z)
	again.Ready, _, ok = d.runner().Prepare(again, r)
	require.True(t, ok)
	ends := make([]backend.End, 3)
	n := d.runner().Run([]*backend.Job{again, again, again}, ends)
	for range ends[n:] {
		again.ID = d.id()
		require.Equal(t, outcome.Success, d.run(again))
	}
	sameBytes(t, floats(31, 62, 93, 124), z.Host)
}

// A list runs as it does by Submit, whatever part of it Run leaves.
func testRunLists(t *testing.T, d *device) {
	s, to := d.span(make([]byte, 4096)), d.span(make([]byte, 4096))
	entries, want := d.mixed(s, to)
	for range 5 { // some hundred fills of 4 KiB
		entries = append(entries, entries...)
	}
	for from := range len(entries) {
		job := d.list(nil, entries...)
		if slices.ContainsFunc(job.List, func(e backend.Job) bool { return e.Ready == nil }) {
			t.Skip("it runs no such lists")
		}
		job.From = uint32(from / 4 * 4)
		clear(to.Host)
		end := d.runAll(job)[0]
		require.Equal(t, outcome.Success, end.Outcome)
		require.EqualValues(t, len(entries)-int(job.From), end.Begun)
		sameBytes(t, want, to.Host)
	}
	d.sink.onceEach(t)
}

func testRunListTraps(t *testing.T, d *device) {
	fine, entries := d.secondTraps()
	var guilty backend.Context
	end := d.runAll(d.list(&guilty, entries...))[0]
	require.Equal(t, trapped(outcome.MemoryGone, 0, 4096, 0, 0), end.Outcome)
	require.EqualValues(t, 2, end.Begun)
	require.True(t, guilty.Trapped())
	sameBytes(t, fillReference(1, len(fine.Host)), fine.Host)
}

// Work that Submit would refuse, that is watched, or that has no bound is not fit.
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
		r, nanos, ok := d.runner().Prepare(job, nil)
		require.False(t, ok, name)
		require.Nil(t, r, name)
		require.Zero(t, nanos, name)
	}
	// A Ready of nobody's is left alone.
	none, strange := d.fill(s, 1), d.fill(s, 1)
	strange.Ready = 7
	require.Zero(t, d.runner().Run([]*backend.Job{none}, make([]backend.End, 1)))
	require.Zero(t, d.runner().Run([]*backend.Job{strange}, make([]backend.End, 1)))
}

func floats(values ...float32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// Memory that a client took away is a trap, which ends its context and no other.
func testRunTraps(t *testing.T, d *device) {
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
	ends := d.runAll(jobs...)
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
	require.Equal(t, cancelled, d.runAll(jobs[0])[0].Outcome)
}

func testRunIdle(t *testing.T, d *device) {
	s := d.span(make([]byte, 64))
	job := d.fill(s, 1)
	hold := d.spin(t)
	if d.prepare(job) {
		require.Zero(t, d.runner().Run([]*backend.Job{job}, make([]backend.End, 1)))
	}
	sameBytes(t, make([]byte, 64), s.Host)
	d.Cancel(hold.ID)
	d.sink.wait(t, hold.ID)
	require.Equal(t, outcome.Success, d.runAll(job)[0].Outcome)
	sameBytes(t, fillReference(1, 64), s.Host)
}

func testRunReset(t *testing.T, d *device) {
	s := d.span(make([]byte, 64))
	job := d.fill(s, 1)
	require.Equal(t, outcome.Success, d.runAll(job)[0].Outcome)
	d.reset()
	job.ID = d.id()
	require.Equal(t, outcome.Success, d.runAll(job)[0].Outcome)
	ok := d.prepare(job)
	require.NoError(t, d.Close())
	if ok {
		clear(s.Host)
		require.Zero(t, d.runner().Run([]*backend.Job{job}, make([]backend.End, 1)))
		sameBytes(t, make([]byte, 64), s.Host)
	}
}

// While a Reset waits, Run goes on or is refused; when it has returned the device
// touches nothing of its jobs, nor after Close.
func testRunBeside(t *testing.T, d *device) {
	s := d.watched(4096)
	job := d.fill(s, 0x01010101)
	if !d.prepare(job) {
		t.Skip("it runs no fills of 4 KiB")
	}
	d.besideResets(t, s, "jobs that Run has run", func(over *atomic.Bool) {
		jobs := make([]*backend.Job, 32)
		for i := range jobs {
			jobs[i] = job
		}
		for !over.Load() {
			ends := make([]backend.End, len(jobs))
			n := d.runner().Run(jobs, ends)
			for _, end := range ends[:n] {
				if end.Outcome != outcome.Success {
					t.Errorf("a job beside a reset ended %v", end.Outcome)
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
