package backendtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/outcome"
)

// A backend that runs lists keeps to these.
var listTests = []test{
	{name: "InOrder", run: testListInOrder, needs: []string{needsLists}},
	{name: "EndsAtTrap", run: testListEndsAtTrap, needs: []string{needsLists, needsAnyMemory}},
	{name: "CancelledWithin", run: testListCancelled, needs: []string{needsLists, needsHold}},
}

// list is a job of entries, which are told what Prepare says of them.
func (d *device) list(context *backend.Context, entries ...*backend.Job) *backend.Job {
	job := &backend.Job{ID: d.id(), Op: backend.OpList, Context: context, List: make([]backend.Job, len(entries))}
	b, ok := d.Backend.(backend.Runner)
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

// mixed are entries with a result that tells in which order they ran, and that result.
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
