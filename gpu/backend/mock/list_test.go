package mock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/outcome"
)

// listSink hands on completions.
type listSink chan backend.Completion

func (s listSink) Complete(c backend.Completion) { s <- c }
func (s listSink) DeviceGone(string)             {}

// listRig is a device and what its lists are made of.
type listRig struct {
	t    *testing.T
	dev  *mock.Device
	told listSink
	id   backend.JobID
	iova uint64
}

func newListRig(t *testing.T, o mock.Options) *listRig {
	t.Helper()
	dev, err := mock.New(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	r := &listRig{t: t, dev: dev, told: make(listSink, 16), iova: 1 << 20}
	require.NoError(t, dev.Start(r.told))
	return r
}

func (r *listRig) span(host []byte) backend.Span {
	r.iova += 1 << 20
	return backend.Span{Host: host, IOVA: r.iova}
}

func (r *listRig) launch(name string, spans ...backend.Span) backend.Job {
	p, err := r.dev.Builtin(name)
	require.NoError(r.t, err)
	var bytes []uint64
	for _, s := range spans {
		bytes = append(bytes, uint64(len(s.Host)))
	}
	grid, block := p.Info().NaturalGrid(bytes)
	return backend.Job{Op: backend.OpLaunch, Program: p, Grid: grid, Block: block, Spans: spans, Inline: make([]byte, p.Info().InlineBytes)}
}

func fillJob(s backend.Span, pattern uint32) backend.Job {
	return backend.Job{Op: backend.OpFill, Spans: []backend.Span{s}, Pattern: pattern}
}

// submit runs a list of these entries.
func (r *listRig) submit(entries ...backend.Job) backend.JobID {
	r.t.Helper()
	context := &backend.Context{}
	for i := range entries {
		entries[i].Context = context
	}
	r.id++
	require.NoError(r.t, r.dev.Submit(&backend.Job{ID: r.id, Op: backend.OpList, List: entries, Context: context}))
	return r.id
}

func TestListRunsInOrder(t *testing.T) {
	r := newListRig(t, mock.Options{LogEntries: 8})
	a, big := r.span(make([]byte, 64)), r.span(make([]byte, 1<<20))
	r.submit(fillJob(a, 1), fillJob(big, 2),
		backend.Job{Op: backend.OpCopy, Spans: []backend.Span{a, {Host: big.Host[:64], IOVA: big.IOVA}}}, r.launch("fill_u32", r.span(a.Host[:4])))
	c := <-r.told
	require.Equal(t, outcome.Success, c.Outcome)
	require.EqualValues(t, 4, c.Begun)
	require.Equal(t, []byte{0, 0, 0, 0, 2, 0, 0, 0}, a.Host[:8])
	log, _ := r.dev.Log()
	require.Equal(t, backend.OpList, log[0].Op)
	require.EqualValues(t, 64+1<<20+64+4, log[0].Bytes)
}

// The first entry that is not ok is the last.
func TestListEndsAtTrap(t *testing.T) {
	gone, err := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(gone)) })
	r := newListRig(t, mock.Options{})
	a, b := r.span(make([]byte, 64)), r.span(make([]byte, 64))
	r.submit(fillJob(a, 1), r.launch("trap", a), fillJob(b, 1))
	c := <-r.told
	require.Equal(t, outcome.OutOfBounds, c.Outcome.Trap.Kind)
	require.EqualValues(t, 64, c.Outcome.Trap.Offset)
	require.EqualValues(t, 2, c.Begun)
	require.Zero(t, b.Host[0])

	clear(a.Host)
	r.submit(fillJob(a, 1), backend.Job{Op: backend.OpCopy, Spans: []backend.Span{r.span(make([]byte, 4096)), r.span(gone)}}, fillJob(b, 1))
	c = <-r.told
	require.Equal(t, outcome.MemoryGone, c.Outcome.Trap.Kind)
	require.EqualValues(t, 1, c.Outcome.Trap.Binding)
	require.EqualValues(t, 2, c.Begun)
	require.EqualValues(t, 1, a.Host[0])
	require.Zero(t, b.Host[0])
}

// A cancel stops a list between two entries, or in one.
func TestListCancelled(t *testing.T) {
	r := newListRig(t, mock.Options{})
	a := r.span(make([]byte, 64))
	id := r.submit(fillJob(a, 1), r.launch("spin"), fillJob(a, 2))
	for deadline := time.Now().Add(10 * time.Second); len(r.told) == 0; {
		r.dev.Cancel(id)
		require.True(t, time.Now().Before(deadline))
	}
	c := <-r.told
	require.Equal(t, outcome.Outcome{Kind: outcome.Cancelled}, c.Outcome)
	require.LessOrEqual(t, c.Begun, uint32(2))
	require.NotEqual(t, byte(2), a.Host[0])
}

func TestListRefused(t *testing.T) {
	r := newListRig(t, mock.Options{})
	a := r.span(make([]byte, 64))
	for name, entries := range map[string][]backend.Job{
		"empty":    {},
		"too many": make([]backend.Job, backend.MaxListEntries+1),
		"a list":   {{Op: backend.OpList, List: []backend.Job{fillJob(a, 1)}}},
		"nothing":  {fillJob(a, 1), {}},
		"a copy":   {{Op: backend.OpCopy, Spans: []backend.Span{a}}},
	} {
		require.Error(t, r.dev.Submit(&backend.Job{ID: 1, Op: backend.OpList, List: entries}), name)
	}
	require.Error(t, r.dev.Submit(&backend.Job{ID: 1, Op: backend.OpList, Spans: []backend.Span{a}, List: []backend.Job{fillJob(a, 1)}}))
}

func TestListsAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	r := newListRig(t, mock.Options{LogEntries: 16})
	job := backend.Job{ID: 1, Op: backend.OpList, List: make([]backend.Job, 100)}
	for i := range job.List {
		job.List[i] = fillJob(r.span(make([]byte, 64)), 1)
	}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if err := r.dev.Submit(&job); err != nil {
			t.Fatal(err)
		}
		<-r.told
	}))
}
