package backendtest

import (
	"errors"
	"math/bits"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
)

var staticTests = []test{
	{name: "InfoAndLimits", run: testInfo, unstarted: true},
	{name: "Programs", run: testPrograms, unstarted: true, long: true},
	{name: "NaturalGrids", run: testNaturalGrids, unstarted: true, long: true},
	{name: "LoadRefusesRubbish", run: testLoad, unstarted: true, long: true},
	{name: "SubmitBeforeStart", run: testUnstarted, unstarted: true},
	{name: "StartOnce", run: testStartOnce},
	{name: "MalformedJobsAreNotTaken", run: testMalformed},
}

func testInfo(t *testing.T, d *device) {
	info := d.Info()
	require.Equal(t, info, d.Info(), "Info is static")
	require.NotEmpty(t, info.Name)
	require.NotZero(t, info.MemoryBytes)
	l := info.Limits
	require.NotZero(t, l.MaxThreadsPerBlock)
	require.NotZero(t, l.MaxBlockDim)
	require.NotZero(t, l.MaxGridDim)
	require.NotZero(t, l.MaxBindings)
	require.Positive(t, l.MaxJobs)
	require.NotZero(t, l.SubgroupSize)
	require.Equal(t, 1, bits.OnesCount32(l.BindingAlign), "BindingAlign is %d, no power of two", l.BindingAlign)
	require.Positive(t, l.CancelBound)
}

func testPrograms(t *testing.T, d *device) {
	names := d.Programs()
	require.True(t, slices.IsSorted(names))
	require.Len(t, slices.Compact(slices.Clone(names)), len(names))
	digests := map[[32]byte]string{}
	for _, name := range names {
		p, err := d.Builtin(name)
		require.NoError(t, err)
		info := p.Info()
		require.Equal(t, name, info.Name)
		require.NotZero(t, info.Digest)
		require.Empty(t, digests[info.Digest])
		digests[info.Digest] = name
		require.LessOrEqual(t, len(info.Bindings), int(d.Info().Limits.MaxBindings))
		require.LessOrEqual(t, info.InlineBytes, d.Info().Limits.MaxInlineBytes)
		for _, b := range info.Bindings {
			require.NotEmpty(t, b.Name)
			require.NotZero(t, b.Access&backend.ReadWrite)
			require.Zero(t, b.Access&^backend.ReadWrite)
		}
	}
	for _, name := range []string{"", "no such program", "vecadd_f32\x00"} {
		_, err := d.Builtin(name)
		require.ErrorIs(t, err, gpuerr.NoProgram)
	}
}

func testNaturalGrids(t *testing.T, d *device) {
	l := d.Info().Limits
	for _, name := range d.Programs() {
		p, err := d.Builtin(name)
		require.NoError(t, err)
		bindings := len(p.Info().Bindings)
		for _, bytes := range []uint64{0, 1, 4, 1023, 1024, 1028, 1 << 20, 1<<32 + 4, 1 << 40, 1<<64 - 1} {
			sizes := make([]uint64, bindings)
			for i := range sizes {
				sizes[i] = bytes
			}
			grid, block := p.Info().NaturalGrid(sizes)
			for _, n := range []uint32{grid.X, grid.Y, grid.Z} {
				require.Positive(t, n)
				require.LessOrEqual(t, n, l.MaxGridDim)
			}
			for _, n := range []uint32{block.X, block.Y, block.Z} {
				require.Positive(t, n)
				require.LessOrEqual(t, n, l.MaxBlockDim)
			}
			require.LessOrEqual(t, block.Count(), uint64(l.MaxThreadsPerBlock))
		}
		p.Info().NaturalGrid(nil) // must not panic
	}
}

func testLoad(t *testing.T, d *device) {
	for _, bundle := range [][]byte{nil, {}, []byte("rubbish"), make([]byte, 4096)} {
		_, err := d.Load(t.Context(), bundle)
		require.Error(t, err)
		if !errors.Is(err, gpuerr.Unimplemented) {
			require.ErrorIs(t, err, gpuerr.Program)
		}
	}
}

func testUnstarted(t *testing.T, d *device) {
	require.Error(t, d.Submit(&backend.Job{ID: 1, Op: backend.OpFill, Spans: []backend.Span{d.span(make([]byte, 64))}}))
	d.Cancel(1)
	require.NoError(t, d.Close())
	require.NoError(t, d.Close(), "Close is idempotent")
	require.Error(t, d.Start(d.sink))
}

func testStartOnce(t *testing.T, d *device) {
	require.Error(t, d.Start(d.sink))
}

func testMalformed(t *testing.T, d *device) {
	s := d.span(make([]byte, 1024))
	short := s
	short.Host = s.Host[:512]
	l := d.Info().Limits
	bad := map[string]*backend.Job{
		"no op":            {Spans: []backend.Span{s}},
		"unknown op":       {Op: 99, Spans: []backend.Span{s}},
		"copy of one span": {Op: backend.OpCopy, Spans: []backend.Span{s}},
		"copy unequal":     {Op: backend.OpCopy, Spans: []backend.Span{s, short}},
		"fill of nothing":  {Op: backend.OpFill},
		"no program":       {Op: backend.OpLaunch, Spans: []backend.Span{s}, Grid: backend.Dim3{X: 1, Y: 1, Z: 1}, Block: backend.Dim3{X: 1, Y: 1, Z: 1}},
		"foreign program":  {Op: backend.OpLaunch, Program: foreign{}, Spans: []backend.Span{s}, Grid: backend.Dim3{X: 1, Y: 1, Z: 1}, Block: backend.Dim3{X: 1, Y: 1, Z: 1}},
		"many spans":       {Op: backend.OpFill, Spans: make([]backend.Span, l.MaxBindings+1)},
	}
	p := d.simple(t)
	vary := func(f func(j *backend.Job)) *backend.Job {
		j := d.launch(p, make([]byte, p.Info().InlineBytes), slices.Repeat([]backend.Span{s}, len(p.Info().Bindings))...)
		f(j)
		return j
	}
	if p.Info().InlineBytes > 0 {
		bad["no inline"] = vary(func(j *backend.Job) { j.Inline = nil })
	}
	bad["long inline"] = vary(func(j *backend.Job) { j.Inline = make([]byte, p.Info().InlineBytes+4) })
	bad["no bindings"] = vary(func(j *backend.Job) { j.Spans = nil })
	bad["a binding more"] = vary(func(j *backend.Job) { j.Spans = append(j.Spans, s) })
	bad["grid 0"] = vary(func(j *backend.Job) { j.Grid.Y = 0 })
	bad["grid too large"] = vary(func(j *backend.Job) { j.Grid.X = l.MaxGridDim + 1 })
	bad["block 0"] = vary(func(j *backend.Job) { j.Block.Z = 0 })
	bad["block too large"] = vary(func(j *backend.Job) { j.Block.X = l.MaxBlockDim + 1 })
	bad["too many threads"] = vary(func(j *backend.Job) { j.Block = backend.Dim3{X: l.MaxBlockDim, Y: 2, Z: l.MaxThreadsPerBlock} })
	bad["too much shared memory"] = vary(func(j *backend.Job) { j.Shared = l.MaxSharedBytes + 1 })
	refused(t, d.Submit(nil))
	for name, job := range bad {
		t.Run(name, func(t *testing.T) {
			job.ID = d.id()
			refused(t, d.Submit(job))
		})
	}
	good := &backend.Job{ID: d.id(), Op: backend.OpFill, Spans: []backend.Span{s}}
	d.run(good)
	require.Equal(t, []backend.JobID{good.ID}, d.sink.ids(), "a refused job is not completed")
}

// foreign is a program of no device.
type foreign struct{}

func (foreign) Info() *backend.ProgramInfo { return &backend.ProgramInfo{Name: "foreign"} }
