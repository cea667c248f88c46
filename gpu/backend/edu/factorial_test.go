package edu_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/edu"
	"capgpu/gpu/backend/edu/edutest"
	"capgpu/outcome"
)

// factorial is a launch of so many lanes.
func (r *rig) factorial(operands, results backend.Span, lanes uint32) *backend.Job {
	r.t.Helper()
	p, err := r.d.Builtin("edu.factorial")
	require.NoError(r.t, err)
	return &backend.Job{
		Op: backend.OpLaunch, Program: p, Spans: []backend.Span{operands, results},
		Grid: backend.Dim3{X: 1, Y: 1, Z: 1}, Block: backend.Dim3{X: lanes, Y: 1, Z: 1},
	}
}

// reference is n! mod 2^32.
func reference(n uint32) uint32 {
	f := uint32(1)
	for i := uint32(2); i <= n; i++ {
		f *= i
	}
	return f
}

func TestFactorial(t *testing.T) {
	bubble(t, edutest.Options{}, func(t *testing.T, r *rig) {
		var operands, want []uint32
		for n := range uint32(40) {
			operands, want = append(operands, n), append(want, reference(n))
		}
		operands, want = append(operands, 65535, edu.MaxOperand), append(want, 0, 0)
		in, out := r.span(words(operands...)), r.span(zeros(4*len(operands)))
		before := r.d.Progress()
		require.Equal(t, outcome.Success, r.run(r.factorial(in, out, 64)).Outcome)
		require.Equal(t, words(want...), out.Host)
		require.Equal(t, words(operands...), in.Host)
		require.EqualValues(t, len(operands), r.d.Progress()-before)
		require.Zero(t, r.d.Counters())
		// In place, each operand is read before its result is there.
		require.Equal(t, outcome.Success, r.run(r.factorial(in, in, 64)).Outcome)
		require.Equal(t, words(want...), in.Host)
	})
}

// A lane does the element of its number, where both bindings have one.
func TestFactorialLanes(t *testing.T) {
	bubble(t, edutest.Options{}, func(t *testing.T, r *rig) {
		in := r.span(words(3, 4, 5, 6, 7, 8))
		for _, c := range []struct {
			grid, block backend.Dim3
			inBytes     int
			outBytes    int
			done        int
		}{
			{backend.Dim3{X: 1, Y: 1, Z: 1}, backend.Dim3{X: 2, Y: 1, Z: 1}, 24, 24, 2},
			{backend.Dim3{X: 2, Y: 1, Z: 2}, backend.Dim3{X: 1, Y: 1, Z: 1}, 24, 24, 4},
			{backend.Dim3{X: 65535, Y: 65535, Z: 65535}, backend.Dim3{X: 4, Y: 16, Z: 16}, 24, 24, 6},
			{backend.Dim3{X: 9, Y: 1, Z: 1}, backend.Dim3{X: 9, Y: 1, Z: 1}, 11, 24, 2},
			{backend.Dim3{X: 9, Y: 1, Z: 1}, backend.Dim3{X: 9, Y: 1, Z: 1}, 24, 15, 3},
			{backend.Dim3{X: 9, Y: 1, Z: 1}, backend.Dim3{X: 9, Y: 1, Z: 1}, 0, 24, 0},
		} {
			out := r.span(zeros(24))
			job := r.factorial(backend.Span{Host: in.Host[:c.inBytes], IOVA: in.IOVA}, backend.Span{Host: out.Host[:c.outBytes], IOVA: out.IOVA}, 1)
			job.Grid, job.Block = c.grid, c.block
			require.Equal(t, outcome.Success, r.run(job).Outcome)
			want := append(words([]uint32{6, 24, 120, 720, 5040, 40320}[:c.done]...), zeros(24-4*c.done)...)
			require.Equal(t, want, out.Host, "%+v", c)
		}
		grid, block := job(r, in).Program.Info().NaturalGrid([]uint64{24, 24})
		require.GreaterOrEqual(t, grid.Count()*block.Count(), uint64(6))
	})
}

func job(r *rig, in backend.Span) *backend.Job { return r.factorial(in, in, 1) }

// An operand that would take the unit too long ends the launch. The operands before it are
// done.
func TestFactorialOperandTooLarge(t *testing.T) {
	bubble(t, edutest.Options{}, func(t *testing.T, r *rig) {
		for _, large := range []uint32{edu.MaxOperand + 1, 0xffffffff} {
			in, out := r.span(words(4, large, 5)), r.span(words(9, 9, 9))
			require.Equal(t, launchLimit, r.run(r.factorial(in, out, 3)).Outcome)
			require.Equal(t, words(24, 9, 9), out.Host)
		}
		in := r.span(words(4))
		require.Equal(t, outcome.Success, r.run(r.factorial(in, in, 1)).Outcome, "the device goes on")
	})
}

func TestFactorialTraps(t *testing.T) {
	bubble(t, edutest.Options{}, func(t *testing.T, r *rig) {
		s := r.span(words(1, 2, 3, 4))
		odd := backend.Span{Host: s.Host[1:9], IOVA: s.IOVA + 1}
		for i, spans := range [][2]backend.Span{{odd, s}, {s, odd}} {
			var context backend.Context
			j := r.factorial(spans[0], spans[1], 2)
			j.Context = &context
			got := r.run(j).Outcome
			require.Equal(t, outcome.Trap{Kind: outcome.Misaligned, Binding: uint16(i)}, got.Trap)
			require.True(t, context.Trapped())
		}
		j := r.factorial(s, s, 2)
		j.Check = true
		require.Equal(t, deviceError, r.run(j).Outcome, "there is nothing that could watch it")
	})
}

func TestFactorialCancel(t *testing.T) {
	bubble(t, edutest.Options{FactorialTime: 5 * time.Millisecond}, func(t *testing.T, r *rig) {
		in, out := r.span(words(make([]uint32, 1000)...)), r.span(zeros(4000))
		j := r.submit(r.factorial(in, out, 1000))
		time.Sleep(52 * time.Millisecond)
		r.d.Cancel(j.ID)
		require.Equal(t, cancelled, r.await(j).Outcome)
		done := 0
		for i := range 1000 {
			done += int(binary.LittleEndian.Uint32(out.Host[4*i:])) // 0! is 1
		}
		require.InDelta(t, 11, done, 1)
	})
}

// vanishing is memory that the device reaches, but the driver only up to remaining: a
// mapping of a file that was cut.
func vanishing(t *testing.T, r *rig, bytes, remaining int) backend.Span {
	t.Helper()
	fd, err := unix.MemfdCreate("vanishing", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(fd)) }()
	require.NoError(t, unix.Ftruncate(fd, int64(bytes)))
	host, err := unix.Mmap(fd, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(host)) })
	require.NoError(t, unix.Ftruncate(fd, int64(remaining)))
	return backend.Span{Host: host, IOVA: r.span(zeros(bytes)).IOVA}
}

// Memory that cannot be read any more is a trap of the job, not the process's end.
func TestMemoryGone(t *testing.T) {
	bubble(t, edutest.Options{}, func(t *testing.T, r *rig) {
		const size, left = 12288, 4096
		lanes := func(in, out backend.Span) *backend.Job {
			j := r.factorial(in, out, 64)
			j.Grid.X = size / 4 / 64
			return j
		}
		healthy := r.span(zeros(size))
		for name, c := range map[string]struct {
			job     func(gone backend.Span) *backend.Job
			binding uint16
		}{
			"copy from": {func(gone backend.Span) *backend.Job { return copyJob(healthy, gone) }, 1},
			"copy to":   {func(gone backend.Span) *backend.Job { return copyJob(gone, healthy) }, 0},
			"fill":      {func(gone backend.Span) *backend.Job { return fillJob(gone, 0) }, 0},
			"operands":  {func(gone backend.Span) *backend.Job { return lanes(gone, r.span(zeros(size))) }, 0},
			"results":   {func(gone backend.Span) *backend.Job { return lanes(r.span(zeros(size)), gone) }, 1},
		} {
			// The driver and the device both see all zeros of it.
			job := c.job(vanishing(t, r, size, left))
			got := r.run(job).Outcome
			require.Equal(t, outcome.TrapCause, got.Cause, "%s: %v", name, got)
			require.Equal(t, outcome.MemoryGone, got.Trap.Kind, name)
			require.Equal(t, c.binding, got.Trap.Binding, name)
			require.GreaterOrEqual(t, got.Trap.Offset, uint64(left), name) // not every look begins at the front
			require.Less(t, got.Trap.Offset, uint64(size), name)
			if job.Op == backend.OpLaunch {
				require.EqualValues(t, left/4/64, got.Trap.Workgroup, name)
				require.Zero(t, got.Trap.Lane, name)
			}
		}
		require.Equal(t, outcome.Success, r.run(fillJob(healthy, 1)).Outcome)
	})
}
