package mock_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/program/library"
)

// signalSink tells when a job is done, without allocating.
type signalSink struct {
	done chan struct{}
	last backend.Completion
}

func (s *signalSink) Complete(c backend.Completion) {
	s.last = c
	s.done <- struct{}{}
}

func (s *signalSink) DeviceGone(string) {}

// started is a device that runs one job at a time for a test.
func started(tb testing.TB, o mock.Options) (*mock.Device, *signalSink) {
	tb.Helper()
	d, err := mock.New(o)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, d.Close()) })
	s := &signalSink{done: make(chan struct{}, 1)}
	require.NoError(tb, d.Start(s))
	return d, s
}

func launch(tb testing.TB, d *mock.Device, name string, inline []byte, spans ...backend.Span) *backend.Job {
	tb.Helper()
	p, err := d.Builtin(name)
	require.NoError(tb, err)
	sizes := make([]uint64, len(spans))
	for i, s := range spans {
		sizes[i] = uint64(len(s.Host))
	}
	grid, block := p.Info().NaturalGrid(sizes)
	return &backend.Job{ID: 1, Op: backend.OpLaunch, Program: p, Grid: grid, Block: block, Spans: spans, Inline: inline}
}

func TestLogIsBoundedAndTells(t *testing.T) {
	d, s := started(t, mock.Options{LogEntries: 3, LogDigests: true})
	src, dst := backend.Span{Host: bytes.Repeat([]byte{7}, 64)}, backend.Span{Host: make([]byte, 64), IOVA: 4096}
	for id := backend.JobID(1); id <= 5; id++ {
		job := launch(t, d, "copy", nil, src, dst)
		job.ID = id
		require.NoError(t, d.Submit(job))
		<-s.done
	}
	log, forgotten := d.Log()
	require.EqualValues(t, 2, forgotten)
	require.Len(t, log, 3)
	for i, e := range log {
		require.EqualValues(t, i+3, e.ID)
		require.EqualValues(t, i+3, e.Ordinal)
		require.Equal(t, "copy", e.Program)
		require.Equal(t, backend.OpLaunch, e.Op)
		require.True(t, e.Started)
		require.Equal(t, mock.Finished, e.End)
		require.Equal(t, outcome.Success, e.Outcome)
		require.EqualValues(t, 64, e.Bytes)
		require.Equal(t, sha256.Sum256(dst.Host), e.Digest, "of what it wrote and nothing else")
		require.GreaterOrEqual(t, e.EndedAt, e.StartedAt)
	}
	require.NoError(t, d.Close())
	again, _ := d.Log()
	require.Equal(t, log, again, "the log stays")
}

func TestOutstandingIDsAreUnique(t *testing.T) {
	d, s := started(t, mock.Options{})
	spin := launch(t, d, "spin", nil)
	require.NoError(t, d.Submit(spin))
	require.ErrorIs(t, d.Submit(spin), gpuerr.Invalid)
	d.Cancel(1)
	<-s.done
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, laneOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("laneOnly=%v", laneOnly), func(t *testing.T) { testSteadyState(t, laneOnly) })
	}
}

func testSteadyState(t *testing.T, laneOnly bool) {
	d, s := started(t, mock.Options{Workers: 2, LogEntries: 16, LaneOnly: laneOnly})
	buf := func(n int) backend.Span { return backend.Span{Host: make([]byte, n)} }
	large := []backend.Span{buf(1 << 20), buf(1 << 20), buf(1 << 20)}
	for name, job := range map[string]*backend.Job{
		"fill":         {ID: 1, Op: backend.OpFill, Spans: large[:1]},
		"copy":         {ID: 1, Op: backend.OpCopy, Spans: large[:2]},
		"small vecadd": launch(t, d, "vecadd_f32", nil, buf(64), buf(64), buf(64)),
		"large vecadd": launch(t, d, "vecadd_f32", nil, large...),
		"matvec":       launch(t, d, "matvec_f32", binary.LittleEndian.AppendUint64(nil, 512|512<<32), large...),
	} {
		n := testing.AllocsPerRun(100, func() {
			if err := d.Submit(job); err != nil {
				t.Fatal(err)
			}
			<-s.done
			if s.last.Outcome != outcome.Success {
				t.Fatal(s.last.Outcome)
			}
		})
		require.Zero(t, n, name)
	}
}

// shifted overlaps c with a by one element: then c[i] is a[i+1], and the result
// depends on the order of workgroups unless the device keeps it.
func shifted(t *testing.T, workers int) []byte {
	const n = 600_000
	d, s := started(t, mock.Options{Workers: workers})
	all := make([]byte, 4*(n+1))
	for i := range all {
		all[i] = byte(i * 7)
	}
	for i := 3; i < len(all); i += 4 {
		all[i] = 0x3f // floats of moderate size
	}
	b := backend.Span{Host: bytes.Clone(all[:4*n])}
	require.NoError(t, d.Submit(launch(t, d, "vecadd_f32", nil, backend.Span{Host: all[:4*n]}, b, backend.Span{Host: all[4:]})))
	<-s.done
	require.Equal(t, outcome.Success, s.last.Outcome)
	return all
}

func TestOverlapDoesNotDependOnWorkers(t *testing.T) {
	one := shifted(t, 1)
	for range 3 {
		require.True(t, bytes.Equal(one, shifted(t, 4)))
	}
	first := math.Float32frombits(binary.LittleEndian.Uint32(one))
	require.NotZero(t, first)
}

func TestLowestFaultWins(t *testing.T) {
	// Two holes far apart: whichever worker meets one first, the lower is reported.
	const size, hole = 8 << 20, 1 << 20
	host, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(host)) })
	for _, at := range []int{2 << 20, 4 << 20, 6 << 20} {
		require.NoError(t, unix.Mprotect(host[at:at+hole], unix.PROT_NONE))
	}
	d, s := started(t, mock.Options{Workers: 4})
	for range 20 {
		require.NoError(t, d.Submit(launch(t, d, "fill_u32", make([]byte, 4), backend.Span{Host: host})))
		<-s.done
		got := s.last.Outcome.Trap
		require.Equal(t, outcome.MemoryGone, got.Kind)
		require.EqualValues(t, 2<<20, got.Offset)
	}
}

func BenchmarkLaunch(b *testing.B) {
	for name, o := range map[string]mock.Options{"body": {}, "lanes": {LaneOnly: true}} {
		b.Run(name, func(b *testing.B) {
			d, s := started(b, o)
			buf := func() backend.Span { return backend.Span{Host: make([]byte, 64)} }
			job := launch(b, d, "vecadd_f32", nil, buf(), buf(), buf())
			b.ReportAllocs()
			for b.Loop() {
				if err := d.Submit(job); err != nil {
					b.Fatal(err)
				}
				<-s.done
			}
		})
	}
}

// BenchmarkLoad admits and compiles a program of some kilobytes.
func BenchmarkLoad(b *testing.B) {
	d, _ := started(b, mock.Options{})
	for _, name := range []string{"vecadd_f32", "matmul_tiled_f32", "attention_f32", "sample_topk_f32"} {
		bundle, _ := library.Bundle(name)
		b.Run(fmt.Sprintf("%s/%d", name, len(bundle)), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.Load(b.Context(), bytes.Clone(bundle)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkKernels(b *testing.B) {
	const n = 16 << 20 // elements
	d, s := started(b, mock.Options{})
	buf := func() backend.Span {
		span := backend.Span{Host: make([]byte, 4*n)}
		for i := 0; i < len(span.Host); i += 4096 {
			span.Host[i] = 1
		}
		return span
	}
	x, y, z := buf(), buf(), buf()
	for _, c := range []struct {
		name  string
		job   *backend.Job
		bytes int64
	}{
		{"fill", launch(b, d, "fill_u32", make([]byte, 4), x), 4 * n},
		{"copy", launch(b, d, "copy", nil, x, y), 8 * n},
		{"vecadd", launch(b, d, "vecadd_f32", nil, x, y, z), 12 * n},
		{"saxpy", launch(b, d, "saxpy_f32", make([]byte, 4), x, y), 12 * n},
		{"matvec", launch(b, d, "matvec_f32", binary.LittleEndian.AppendUint64(nil, 4096|4096<<32), x, y, z), 4 * n},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(c.bytes)
			b.ReportAllocs()
			for b.Loop() {
				if err := d.Submit(c.job); err != nil {
					b.Fatal(err)
				}
				<-s.done
			}
		})
	}
}

// A checked launch traps at the first race, every time; an unchecked one of the same
// program does not.
func TestChecked(t *testing.T) {
	for _, laneOnly := range []bool{false, true} {
		d, s := started(t, mock.Options{Workers: 4, LaneOnly: laneOnly})
		module, err := os.ReadFile("testdata/race.spv")
		require.NoError(t, err)
		racy, err := d.Load(t.Context(), module)
		require.NoError(t, err)
		mem := make([]byte, 4*64*100)
		run := func(p backend.Program, check bool, spans ...backend.Span) outcome.Outcome {
			job := &backend.Job{
				ID: 1, Op: backend.OpLaunch, Program: p, Check: check, Spans: spans,
				Grid: backend.Dim3{X: 100, Y: 1, Z: 1}, Block: p.Info().Block,
			}
			for i := range mem {
				mem[i] = byte(i >> 2)
			}
			require.NoError(t, d.Submit(job))
			<-s.done
			return s.last.Outcome
		}
		for range 3 {
			got := run(racy, true, backend.Span{Host: mem})
			require.Equal(t, outcome.TrapCause, got.Cause, "%v", got)
			require.Equal(t, outcome.DataRace, got.Trap.Kind)
			require.EqualValues(t, outcome.NoBinding, got.Trap.Binding)
			require.Zero(t, got.Trap.Workgroup)
			require.Equal(t, outcome.Success, run(racy, false, backend.Span{Host: mem}))
		}
		add, err := d.Builtin("vecadd_f32")
		require.NoError(t, err)
		a, c := backend.Span{Host: mem}, backend.Span{Host: make([]byte, len(mem))}
		require.Equal(t, outcome.Success, run(add, true, a, a, c))
	}
}

// A program with all types runs on bindings that begin at a multiple of BindingAlign, and
// not on ones that begin at half of that.
func TestBindingAlignIsWhatIsNeeded(t *testing.T) {
	module, err := os.ReadFile("../../../program/verify/testdata/wide.spv")
	require.NoError(t, err)
	for _, o := range []mock.Options{{}, {Subgroup: 8, LaneOnly: true}} {
		d, s := started(t, o)
		p, err := d.Load(t.Context(), module)
		require.NoError(t, err)
		align := int(d.Info().Limits.BindingAlign)
		run := func(off int) outcome.Outcome {
			job := &backend.Job{
				ID: 1, Op: backend.OpLaunch, Program: p, Inline: make([]byte, p.Info().InlineBytes),
				Grid: backend.Dim3{X: 2, Y: 1, Z: 1}, Block: p.Info().Block,
			}
			for range p.Info().Bindings {
				job.Spans = append(job.Spans, backend.Span{Host: make([]byte, 1<<16)[off : off+1<<15]})
			}
			require.NoError(t, d.Submit(job))
			<-s.done
			return s.last.Outcome
		}
		for off := range 4 {
			require.Equal(t, outcome.Success, run(off*align))
		}
		require.Equal(t, outcome.Misaligned, run(align/2).Trap.Kind)
	}
}

func TestComputeUnitsAreWorkers(t *testing.T) {
	d, _ := started(t, mock.Options{Workers: 3})
	require.EqualValues(t, 3, d.Info().Limits.ComputeUnits)
	require.True(t, d.Info().Deterministic)
}
