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
	{name: "OneTooMany", run: testTrap},
	{name: "MatvecOutOfBounds", run: testMatvecTraps},
	{name: "Misaligned", run: testMisaligned},
	{name: "MemoryGone", run: testMemoryGone},
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
	job.Grid, job.Block = backend.Dim3{X: 4, Y: 2, Z: 1}, backend.Dim3{X: 16, Y: 2, Z: 1}
	// Element 1000 belongs to lane 1000 mod 256 = 232 of 8 × 32.
	require.Equal(t, trapped(outcome.OutOfBounds, 0, 4000, 7, 8), d.run(job))
	empty := d.launch(p, nil, backend.Span{Host: s.Host[:0], IOVA: s.IOVA})
	require.Equal(t, trapped(outcome.OutOfBounds, 0, 0, 0, 0), d.run(empty))
	// A trap is the job's own: the device goes on.
	require.Equal(t, outcome.Success, d.run(&backend.Job{ID: d.id(), Op: backend.OpFill, Spans: []backend.Span{s}, Pattern: 7}))
}

func testMatvecTraps(t *testing.T, d *device) {
	p := d.program(t, "matvec_f32")
	for _, c := range []struct {
		name             string
		rows, cols       uint32
		lenM, lenX, lenY int // words
		binding          uint16
		off              uint64
		row              uint32
	}{
		{"matrix one short", 10, 10, 99, 10, 10, 0, 396, 9},
		{"matrix empty", 10, 10, 0, 10, 10, 0, 0, 0},
		{"x short", 10, 10, 100, 7, 10, 1, 28, 0},
		{"y short", 10, 10, 100, 10, 6, 2, 24, 6},
		{"y before matrix", 10, 10, 95, 10, 3, 2, 12, 3},
		{"matrix before y", 10, 10, 35, 10, 8, 0, 140, 3},
		{"x before matrix", 10, 10, 8, 5, 10, 1, 20, 0},
		{"matrix before x", 10, 10, 3, 5, 10, 0, 12, 0},
		{"no columns, y short", 5, 0, 0, 0, 2, 2, 8, 2},
		{"product overflows", 0xffffffff, 0xffffffff, 100, 10, 10, 1, 40, 0},
		{"product wraps to 0", 0x10000, 0x10000, 4, 8, 8, 0, 16, 0},
		{"rows without end", 0xffffffff, 1, 10, 1, 10, 0, 40, 10},
	} {
		sm, sx, sy := d.span(make([]byte, 4*c.lenM)), d.span(make([]byte, 4*c.lenX)), d.span(bytes.Repeat([]byte{9}, 4*c.lenY))
		job := d.launch(p, words(c.rows, c.cols), sm, sx, sy)
		job.Grid, job.Block = backend.Dim3{X: 2, Y: 1, Z: 1}, backend.Dim3{X: 3, Y: 1, Z: 1}
		lane := c.row % 6
		require.Equal(t, trapped(outcome.OutOfBounds, c.binding, c.off, lane/3, lane%3), d.run(job), c.name)
		sameBytes(t, bytes.Repeat([]byte{9}, 4*c.lenY), sy.Host)
	}
}

func testMisaligned(t *testing.T, d *device) {
	p := d.program(t, "vecadd_f32")
	for i := range 3 {
		for _, c := range []struct {
			from, to int
			off      uint64
		}{{1, 101, 0}, {2, 102, 0}, {0, 99, 96}, {0, 3, 0}} {
			var spans [3]backend.Span
			for j := range spans {
				s := d.span(make([]byte, 200))
				spans[j] = backend.Span{Host: s.Host[:100], IOVA: s.IOVA}
				if i == j {
					spans[j] = backend.Span{Host: s.Host[c.from:c.to], IOVA: s.IOVA + uint64(c.from)}
				}
			}
			got := d.run(d.launch(p, nil, spans[0], spans[1], spans[2]))
			require.Equal(t, outcome.TrapCause, got.Cause, "%v", got)
			require.Equal(t, outcome.Misaligned, got.Trap.Kind)
			require.EqualValues(t, i, got.Trap.Binding)
			require.Equal(t, c.off, got.Trap.Offset)
		}
	}
}

// vanishing is memory whose pages from an offset on cannot be read: a mapping of
// an unsealed memfd that was truncated.
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
	if d.alloc != nil {
		t.Skip("the memory of this device is its own")
	}
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
