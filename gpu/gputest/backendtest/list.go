package backendtest

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/outcome"
)

// What a backend that runs lists keeps to, and a ListBurster with slices of them: the
// tests do what the core does, a slice after the other, and what is left by Submit.
var listTests = []test{
	{name: "InOrder", run: testListInOrder, needs: []string{needsLists}},
	{name: "EndsAtTrap", run: testListEndsAtTrap, needs: []string{needsLists, needsAnyMemory}},
	{name: "CancelledWithin", run: testListCancelled, needs: []string{needsLists, needsHold}},
	{name: "Slices", run: testSlices, needs: []string{needsListBursts}},
	{name: "SliceEndsAtTrap", run: testSliceEndsAtTrap, needs: []string{needsListBursts, needsAnyMemory}},
	{name: "SliceNotReady", run: testSliceNotReady, needs: []string{needsListBursts}},
	{name: "SliceOnlyWhenIdle", run: testSliceIdle, needs: []string{needsListBursts, needsHold}},
	{name: "SliceBesideReset", run: testSliceBeside, needs: []string{needsListBursts}},
}

// list is a job of entries, which are told what Prepare says of them.
func (d *device) list(context *backend.Context, entries ...*backend.Job) *backend.Job {
	job := &backend.Job{ID: d.id(), Op: backend.OpList, Context: context, List: make([]backend.Job, len(entries))}
	b, ok := d.Backend.(backend.Burster)
	for i, e := range entries {
		to := &job.List[i]
		*to = *e
		to.ID, to.Context = 0, context
		if ok {
			if r, _, fit := b.Prepare(to, nil); fit {
				to.Ready = r
			}
		}
	}
	return job
}

// play runs a list in slices of about so long, and what is left by Submit.
func (d *device) play(job *backend.Job, most time.Duration) (begun int, how outcome.Outcome, slices int) {
	d.t.Helper()
	for begun < len(job.List) {
		job.ID = d.id()
		n, end := d.Backend.(backend.ListBurster).BurstList(job, begun, most)
		require.GreaterOrEqual(d.t, end.DeviceTime, time.Duration(0))
		require.LessOrEqual(d.t, n, len(job.List)-begun)
		begun += n
		if n == 0 && end.Outcome.Kind == outcome.Pending {
			rest := *job
			rest.ID, rest.List = d.id(), job.List[begun:]
			require.NoError(d.t, d.Submit(&rest))
			c := d.sink.wait(d.t, rest.ID)
			return begun + int(c.Begun), c.Outcome, slices
		}
		slices++
		if end.Outcome.Kind != outcome.OK {
			return begun, end.Outcome, slices
		}
	}
	return begun, outcome.Success, slices
}

// mixed are entries whose result tells in which order they ran, and what it is.
func (d *device) mixed(s, to backend.Span) (entries []*backend.Job, want []byte) {
	half := len(s.Host) / 2
	part := backend.Span{Host: s.Host[:half:half], IOVA: s.IOVA}
	entries = []*backend.Job{
		d.fill(s, 1), d.fill(part, 2),
		{Op: backend.OpCopy, Spans: []backend.Span{to, s}},
		d.fill(s, 3),
	}
	return entries, append(fillReference(2, half), fillReference(1, len(s.Host)-half)...)
}

func testListInOrder(t *testing.T, d *device) {
	s, to := d.span(make([]byte, 256)), d.span(make([]byte, 256))
	for range d.rounds(20) {
		clear(to.Host)
		entries, want := d.mixed(s, to)
		job := d.list(nil, entries...)
		require.NoError(t, d.Submit(job))
		c := d.sink.wait(t, job.ID)
		require.Equal(t, outcome.Success, c.Outcome)
		require.EqualValues(t, len(entries), c.Begun)
		sameBytes(t, want, to.Host)
		sameBytes(t, fillReference(3, 256), s.Host)
	}
	d.sink.onceEach(t)
}

// secondTraps are entries of which the second traps.
func (d *device) secondTraps() (fine backend.Span, entries []*backend.Job) {
	const size = 8192
	gone, fine := vanishing(d.t, d, size, 4096), d.span(make([]byte, size))
	return fine, []*backend.Job{d.fill(fine, 1), d.fill(gone, 2), d.fill(fine, 3)}
}

func testListEndsAtTrap(t *testing.T, d *device) {
	fine, entries := d.secondTraps()
	var guilty, other backend.Context
	job := d.list(&guilty, entries...)
	require.NoError(t, d.Submit(job))
	c := d.sink.wait(t, job.ID)
	require.Equal(t, trapped(outcome.MemoryGone, 0, 4096, 0, 0), c.Outcome)
	require.EqualValues(t, 2, c.Begun)
	require.True(t, guilty.Trapped())
	sameBytes(t, fillReference(1, len(fine.Host)), fine.Host)
	again := d.list(&guilty, d.fill(fine, 4))
	require.Equal(t, cancelled, d.run(again))
	sameBytes(t, fillReference(1, len(fine.Host)), fine.Host)
	require.Equal(t, outcome.Success, d.run(d.list(&other, d.fill(fine, 5))))
}

func testListCancelled(t *testing.T, d *device) {
	s := d.span(make([]byte, 64))
	job := d.list(nil, d.fill(s, 1), d.hold(t), d.fill(s, 2))
	require.NoError(t, d.Submit(job))
	for deadline := time.Now().Add(patience); len(d.sink.ids()) == 0; {
		d.Cancel(job.ID)
		require.True(t, time.Now().Before(deadline))
	}
	c := d.sink.wait(t, job.ID)
	require.Equal(t, cancelled, c.Outcome)
	require.LessOrEqual(t, c.Begun, uint32(2))
	require.NotEqual(t, byte(2), s.Host[0])
	require.Equal(t, outcome.Success, d.run(d.fill(s, 3)))
}

// However a list is cut, it comes to the same.
func testSlices(t *testing.T, d *device) {
	s, to := d.span(make([]byte, 4096)), d.span(make([]byte, 4096))
	entries, want := d.mixed(s, to)
	for range 5 { // some hundred fills of 4 KiB
		entries = append(slices.Repeat(entries[:1], 40), entries...)
	}
	cut := 0
	for _, most := range []time.Duration{0, time.Microsecond, 10 * time.Microsecond, time.Second} {
		clear(to.Host)
		begun, how, n := d.play(d.list(nil, entries...), most)
		require.Equal(t, outcome.Success, how)
		require.Equal(t, len(entries), begun)
		sameBytes(t, want, to.Host)
		sameBytes(t, fillReference(3, len(s.Host)), s.Host)
		cut = max(cut, n)
	}
	t.Logf("%d entries in up to %d slices", len(entries), cut)
	d.sink.onceEach(t)
}

func testSliceEndsAtTrap(t *testing.T, d *device) {
	fine, entries := d.secondTraps()
	var guilty, other backend.Context
	begun, how, _ := d.play(d.list(&guilty, entries...), time.Second)
	require.Equal(t, trapped(outcome.MemoryGone, 0, 4096, 0, 0), how)
	require.Equal(t, 2, begun)
	require.True(t, guilty.Trapped())
	sameBytes(t, fillReference(1, len(fine.Host)), fine.Host)
	begun, how, _ = d.play(d.list(&guilty, d.fill(fine, 4)), time.Second)
	require.Equal(t, cancelled, how)
	require.Zero(t, begun)
	sameBytes(t, fillReference(1, len(fine.Host)), fine.Host)
	_, how, _ = d.play(d.list(&other, d.fill(fine, 5)), time.Second)
	require.Equal(t, outcome.Success, how)
}

// What is not ready, or nobody's, is left to Submit.
func testSliceNotReady(t *testing.T, d *device) {
	s, to := d.span(make([]byte, 256)), d.span(make([]byte, 256))
	for _, ready := range []backend.Ready{nil, 7} {
		for at := range 4 {
			clear(to.Host)
			entries, want := d.mixed(s, to)
			job := d.list(nil, entries...)
			job.List[at].Ready = ready
			begun, _ := d.Backend.(backend.ListBurster).BurstList(job, 0, time.Second)
			require.LessOrEqual(t, begun, at)
			if ready != nil {
				continue
			}
			begun, how, _ := d.play(job, time.Second)
			require.Equal(t, outcome.Success, how)
			require.Equal(t, len(entries), begun)
			sameBytes(t, want, to.Host)
		}
	}
}

func testSliceIdle(t *testing.T, d *device) {
	s := d.span(make([]byte, 64))
	job := d.list(nil, d.fill(s, 1))
	hold := d.spin(t)
	n, end := d.Backend.(backend.ListBurster).BurstList(job, 0, time.Second)
	require.Zero(t, n)
	require.Equal(t, backend.End{}, end)
	sameBytes(t, make([]byte, 64), s.Host)
	d.Cancel(hold.ID)
	d.sink.wait(t, hold.ID)
	_, how, _ := d.play(job, time.Second)
	require.Equal(t, outcome.Success, how)
	sameBytes(t, fillReference(1, 64), s.Host)
}

// As for bursts: when a Reset or Close has returned the device touches nothing.
func testSliceBeside(t *testing.T, d *device) {
	s := d.watched(4096)
	job := d.list(nil, d.fill(s, 0x01010101), d.fill(s, 0x02020202), d.fill(s, 0x03030303))
	d.besideResets(t, s, "slices", func(over *atomic.Bool) {
		mine := *job
		for id := backend.JobID(1000); !over.Load(); id++ {
			mine.ID = id
			n, end := d.Backend.(backend.ListBurster).BurstList(&mine, 0, time.Second)
			if end.Outcome.Kind != outcome.OK && n > 0 {
				t.Errorf("a slice beside a reset ended %v", end.Outcome)
				return
			}
		}
	})
}
