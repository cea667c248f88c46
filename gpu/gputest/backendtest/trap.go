package backendtest

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpu/backend"
	"capgpu/outcome"
)

var trapTests = []test{
	{name: "OneTooMany", run: testTrap, needs: []string{"trap"}},
	{name: "MatvecOutOfBounds", run: testMatvecTraps, needs: []string{"matvec_f32"}},
	{name: "Misaligned", run: testMisaligned, needs: []string{"vecadd_f32", "fill_u32"}},
	{name: "MemoryGone", run: testMemoryGone, needs: []string{needsAnyMemory}},
	{name: "Sticky", run: testSticky, needs: []string{needsHold}},
}

func trapped(kind outcome.TrapKind, binding uint16, off uint64, workgroup, lane uint32) outcome.Outcome {
	return outcome.Outcome{Kind: outcome.Failed, Cause: outcome.TrapCause, Trap: outcome.Trap{
		Kind: kind, Binding: binding, Offset: off, Workgroup: workgroup, Lane: lane,
	}}
}

func testTrap(t *testing.T, d *device) {
	p := d.program(t, "trap")
	s := d.span(make([]byte, 4*1000))
	job := d.launch(p, nil, s)
	job.Grid = backend.Dim3{X: 4, Y: 2, Z: 1}
	// Every workgroup traps; the lowest is told.
	require.Equal(t, trapped(outcome.OutOfBounds, 0, 4000, 0, 0), d.run(job))
	empty := d.launch(p, nil, backend.Span{Host: s.Host[:0], IOVA: s.IOVA})
	require.Equal(t, trapped(outcome.OutOfBounds, 0, 0, 0, 0), d.run(empty))
	// The device goes on.
	require.Equal(t, outcome.Success, d.run(&backend.Job{ID: d.id(), Op: backend.OpFill, Spans: []backend.Span{s}, Pattern: 7}))
}

// Sizes that do not fit are found before anything is written, and the trap names
// the binding that is too short.
func testMatvecTraps(t *testing.T, d *device) {
	p := d.program(t, "matvec_f32")
	for _, c := range []struct {
		name             string
		rows, cols       uint32
		lenM, lenX, lenY int // words
		binding          uint16
	}{
		{"matrix one short", 10, 10, 99, 10, 10, 0},
		{"matrix empty", 10, 10, 0, 10, 10, 0},
		{"x short", 10, 10, 100, 7, 10, 1},
		{"y short", 10, 10, 100, 10, 6, 2},
		{"matrix before y", 10, 10, 35, 10, 3, 0},
		{"matrix before x", 10, 10, 3, 5, 10, 0},
		{"no columns, y short", 5, 0, 0, 0, 2, 2},
		{"product overflows", 0xffffffff, 0xffffffff, 100, 10, 10, 0},
		{"product wraps to 0", 0x10000, 0x10000, 4, 8, 8, 0},
		{"rows without end", 0xffffffff, 1, 10, 1, 10, 0},
	} {
		sm, sx, sy := d.span(make([]byte, 4*c.lenM)), d.span(make([]byte, 4*c.lenX)), d.span(bytes.Repeat([]byte{9}, 4*c.lenY))
		job := d.launch(p, words(c.rows, c.cols), sm, sx, sy)
		got := d.run(job)
		require.Equal(t, outcome.TrapCause, got.Cause, "%s: %v", c.name, got)
		require.Equal(t, outcome.OutOfBounds, got.Trap.Kind, c.name)
		require.Equal(t, c.binding, got.Trap.Binding, c.name)
		require.Zero(t, got.Trap.Workgroup, c.name)
		sameBytes(t, bytes.Repeat([]byte{9}, 4*c.lenY), sy.Host)
	}
}

// A binding that does not begin at a whole word is a trap; what is left at its end
// is no element.
func testMisaligned(t *testing.T, d *device) {
	p := d.program(t, "vecadd_f32")
	for i := range 3 {
		for _, from := range []int{1, 2, 3} {
			var spans [3]backend.Span
			for j := range spans {
				s := d.span(make([]byte, 200))
				spans[j] = backend.Span{Host: s.Host[:100], IOVA: s.IOVA}
				if i == j {
					spans[j] = backend.Span{Host: s.Host[from : from+100], IOVA: s.IOVA + uint64(from)}
				}
			}
			got := d.run(d.launch(p, nil, spans[0], spans[1], spans[2]))
			require.Equal(t, outcome.TrapCause, got.Cause, "%v", got)
			require.Equal(t, outcome.Misaligned, got.Trap.Kind)
			require.EqualValues(t, i, got.Trap.Binding)
		}
	}
	fill := d.program(t, "fill_u32")
	s := d.span(make([]byte, 103))
	require.Equal(t, outcome.Success, d.run(d.launch(fill, words(0xffffffff), s)))
	sameBytes(t, append(bytes.Repeat([]byte{0xff}, 100), 0, 0, 0), s.Host)
}

// trapping is a job that traps, on any device: a fill that does not begin at a word.
func (d *device) trapping(s backend.Span) *backend.Job {
	return d.fill(backend.Span{Host: s.Host[1:5], IOVA: s.IOVA + 1}, 1)
}

// A trap is sticky in its context, and nowhere else.
func testSticky(t *testing.T, d *device) {
	s := d.span(make([]byte, 64))
	var guilty, other backend.Context
	first := d.trapping(s)
	first.Context = &guilty
	hold := d.hold(t)
	require.NoError(t, d.Submit(hold))
	require.NoError(t, d.Submit(first))
	behind := d.fill(s, 1)
	behind.Context = &guilty
	beside := d.fill(s, 2)
	beside.Context = &other
	require.NoError(t, d.Submit(behind))
	require.NoError(t, d.Submit(beside))
	d.Cancel(hold.ID)
	require.Equal(t, outcome.TrapCause, d.sink.wait(t, first.ID).Outcome.Cause)
	require.Equal(t, cancelled, d.sink.wait(t, behind.ID).Outcome)
	require.Equal(t, outcome.Success, d.sink.wait(t, beside.ID).Outcome)
	sameBytes(t, fillReference(2, 64), s.Host)
	later := d.fill(s, 3)
	later.Context = &guilty
	require.Equal(t, cancelled, d.run(later))
	sameBytes(t, fillReference(2, 64), s.Host)
	d.sink.onceEach(t)
}

// vanishing is memory that cannot be read from an offset on: a mapping of an unsealed
// memfd that was truncated.
func vanishing(t *testing.T, d *device, bytes, remaining int) backend.Span {
	t.Helper()
	fd, err := unix.MemfdCreate("vanishing", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(fd)) }()
	require.NoError(t, unix.Ftruncate(fd, int64(bytes)))
	host, err := unix.Mmap(fd, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(host)) })
	require.NoError(t, unix.Ftruncate(fd, int64(remaining)))
	span := d.shared(1)
	return backend.Span{Host: host, IOVA: span.IOVA + 1<<40}
}

func testMemoryGone(t *testing.T, d *device) {
	const size, left = 4 << 20, 3 << 20
	healthy := d.span(make([]byte, size))
	require.Equal(t, outcome.OK, d.run(&backend.Job{ID: d.id(), Op: backend.OpFill, Spans: []backend.Span{healthy}}).Kind)
	gone := vanishing(t, d, size, left)
	jobs := map[string]*backend.Job{
		"copy from": {Op: backend.OpCopy, Spans: []backend.Span{healthy, gone}},
		"copy to":   {Op: backend.OpCopy, Spans: []backend.Span{gone, healthy}},
		"fill":      {Op: backend.OpFill, Spans: []backend.Span{gone}},
	}
	for _, name := range d.Programs() {
		p, err := d.Builtin(name)
		require.NoError(t, err)
		switch name {
		case "copy", "fill_u32", "saxpy_f32", "vecadd_f32":
			spans := []backend.Span{gone, healthy, healthy}[:len(p.Info().Bindings)]
			jobs[name] = d.launch(p, make([]byte, p.Info().InlineBytes), spans...)
		case "matvec_f32":
			jobs[name] = d.launch(p, words(1024, 1024), gone, healthy, healthy)
		}
	}
	for name, job := range jobs {
		job.ID = d.id()
		got := d.run(job)
		require.Equal(t, outcome.Failed, got.Kind, "%s: %v", name, got)
		require.Equal(t, outcome.TrapCause, got.Cause, "%s: %v", name, got)
		require.Equal(t, outcome.MemoryGone, got.Trap.Kind, "%s: %v", name, got)
		require.GreaterOrEqual(t, got.Trap.Offset, uint64(left), name)
		require.Less(t, got.Trap.Offset, uint64(size), name)
		want := uint16(0)
		if name == "copy from" {
			want = 1
		}
		require.Equal(t, want, got.Trap.Binding, name)
	}
	// The process lives, and so does the device.
	require.Equal(t, outcome.Success, d.run(&backend.Job{ID: d.id(), Op: backend.OpFill, Spans: []backend.Span{healthy}, Pattern: 1}))
	sameBytes(t, fillReference(1, size), healthy.Host)
}
