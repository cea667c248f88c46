package gate

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/driver/session/sessiontest"
	"capgpu/gpuerr"
	"capgpu/schema"
)

// Every argument out of its range is a typed error that names it.
func TestBadArguments(t *testing.T) {
	r := newRig(t, sessiontest.Options{})
	s, other := r.open(), r.open()
	buf, a := r.buffer(s, 4096)
	_, b := r.buffer(s, 8192)
	_, foreign := r.buffer(other, 4096)
	fence, fenceID := r.fence(s)
	foreignFence, _ := r.fence(other)
	foreignProgram := r.program(other, "copy")
	copyProgram, fillProgram := r.program(s, "copy"), r.program(s, "fill_u32")
	gone, stale := r.buffer(s, 4096)
	for range 2 {
		closed, release := gone.Close(r.ctx, nil)
		await(r, closed, release)
	}

	queue, release := s.CreateQueue(r.ctx, nil)
	q := await(r, queue, release).Queue()

	for _, c := range []struct {
		bytes uint64
		usage string
		field string
	}{{0, "", "bytes"}, {math.MaxUint64, "", "bytes"}, {1 << 62, "", "bytes"}, {1, "toilet paper", "usage"}, {1, strings.Repeat("x", 4096), "usage"}} {
		f, release := s.CreateBuffer(r.ctx, bytesOf(c.bytes, c.usage))
		require.Contains(t, refused(r, gpuerr.Invalid, f, release), c.field)
	}

	for _, id := range []uint32{0, stale, foreign, fenceID, math.MaxUint32} {
		f, release := s.DestroyBuffer(r.ctx, func(p schema.GpuMemorySession_destroyBuffer_Params) error { p.SetBuffer(id); return nil })
		require.Contains(t, refused(r, gpuerr.Stale, f, release), "buffer")
		w, release := s.SubmitFenceWait(r.ctx, func(p schema.GpuMemorySession_submitFenceWait_Params) error { p.SetFence(id | 1<<31); return nil })
		require.Contains(t, refused(r, gpuerr.Stale, w, release), "fence")
	}

	for _, c := range []struct {
		dst, src uint32
		bytes    uint64
		code     gpuerr.Code
		field    string
	}{
		{a, b, 4097, gpuerr.Invalid, "bytes"}, {b, a, 4097, gpuerr.Invalid, "bytes"}, {a, b, math.MaxUint64, gpuerr.Invalid, "bytes"},
		{a, b, 0, gpuerr.Invalid, "bytes"}, {foreign, a, 1, gpuerr.Stale, "dst"}, {a, stale, 1, gpuerr.Stale, "src"},
	} {
		f, release := s.SubmitMemcpy(r.ctx, func(p schema.GpuMemorySession_submitMemcpy_Params) error {
			p.SetDst(c.dst)
			p.SetSrc(c.src)
			p.SetBytes(c.bytes)
			return nil
		})
		require.Contains(t, refused(r, c.code, f, release), c.field)
	}

	for _, c := range []struct {
		off    uint64
		length uint32
		field  string
	}{{0, 64<<10 + 1, "length"}, {0, math.MaxUint32, "length"}, {4097, 0, "offset"}, {4096, 1, "length"}, {math.MaxUint64, 1, "offset"}, {1 << 63, 1, "offset"}} {
		f, release := buf.Read(r.ctx, func(p schema.GpuBuffer_read_Params) error { p.SetOffset(c.off); p.SetLength(c.length); return nil })
		require.Contains(t, refused(r, gpuerr.Invalid, f, release), c.field)
		w, release := buf.Write(r.ctx, func(p schema.GpuBuffer_write_Params) error {
			p.SetOffset(c.off)
			return p.SetData(make([]byte, min(c.length, 64<<10+1)))
		})
		refused(r, gpuerr.Invalid, w, release)
	}

	for _, c := range []struct {
		kernel
		code  gpuerr.Code
		field string
	}{
		{kernel{"vecadd_f32", 1, 1, []uint32{a, b, stale}, fence}, gpuerr.Stale, "bufferList"},
		{kernel{"vecadd_f32", 1, 1, []uint32{a, b, foreign}, fence}, gpuerr.Stale, "bufferList"},
		{kernel{"vecadd_f32", 1, 1, []uint32{a, b}, fence}, gpuerr.Invalid, "bufferList"},
		{kernel{"vecadd_f32", 1, 1, make([]uint32, 100_000), fence}, gpuerr.LaunchLimit, "bufferList"},
		{kernel{"vecadd_f32", 0, 1, []uint32{a, b, a}, fence}, gpuerr.Invalid, "grid"},
		{kernel{"vecadd_f32", 0, 0, []uint32{a, b, a}, schema.GpuFence{}}, gpuerr.Invalid, "grid"},
		{kernel{"vecadd_f32", math.MaxUint32, 1, []uint32{a, b, a}, fence}, gpuerr.LaunchLimit, "grid"},
		{kernel{"vecadd_f32", 1, 0, []uint32{a, b, a}, fence}, gpuerr.Invalid, "block"},
		{kernel{"vecadd_f32", 1, math.MaxUint32, []uint32{a, b, a}, fence}, gpuerr.LaunchLimit, "block"},
		{kernel{"no_such", 1, 1, []uint32{a, b, a}, fence}, gpuerr.NoProgram, "no_such"},
		{kernel{"", 1, 1, []uint32{a, b, a}, fence}, gpuerr.Invalid, "program"},
		{kernel{strings.Repeat("n", 300), 1, 1, []uint32{a, b, a}, fence}, gpuerr.Invalid, "program"},
		{kernel{"fill_u32", 1, 1, []uint32{a}, fence}, gpuerr.Invalid, "inlineArgs"},
		{kernel{"vecadd_f32", 1, 1, []uint32{a, b, a}, foreignFence}, gpuerr.Invalid, "fence"},
		{kernel{"vecadd_f32", 1, 1, []uint32{a, b, a}, schema.GpuFence(buf)}, gpuerr.Invalid, "fence"},
	} {
		f, release := s.LaunchKernel(r.ctx, c.params)
		require.Contains(t, refused(r, c.code, f, release), c.field)
	}

	for name, c := range map[string]struct {
		fill  func(schema.Command) error
		code  gpuerr.Code
		field string
	}{
		"null program":     {launchCommand(schema.GpuProgram{}, 1, 1, nil, a, b), gpuerr.Invalid, "commands[0].program"},
		"foreign program":  {launchCommand(foreignProgram, 1, 1, nil, a, b), gpuerr.Invalid, "commands[0].program"},
		"a buffer":         {launchCommand(schema.GpuProgram(buf), 1, 1, nil, a, b), gpuerr.Invalid, "commands[0].program"},
		"too few buffers":  {launchCommand(copyProgram, 1, 1, nil, a), gpuerr.Invalid, "commands[0].bindings"},
		"stale buffer":     {launchCommand(copyProgram, 1, 1, nil, a, stale), gpuerr.Stale, "commands[0].bindings"},
		"inline too long":  {launchCommand(fillProgram, 1, 1, make([]byte, 5), a), gpuerr.Invalid, "commands[0].inlineArgs"},
		"inline huge":      {launchCommand(fillProgram, 1, 1, make([]byte, 70_000), a), gpuerr.Invalid, "commands[0].inlineArgs"},
		"copy beyond":      {copyCommand(uint64(a), 1, uint64(b), 0, 4096), gpuerr.Invalid, "commands[0].length"},
		"copy overflow":    {copyCommand(uint64(a), 8, uint64(b), 8, math.MaxUint64-4), gpuerr.Invalid, "commands[0].length"},
		"copy offset":      {copyCommand(uint64(a), math.MaxUint64, uint64(b), 0, 1), gpuerr.Invalid, "commands[0].dstOffset"},
		"fill unaligned":   {fillCommand(a, 2, 4, 0), gpuerr.Invalid, "commands[0].fillLength"},
		"fill beyond":      {fillCommand(a, 4, 4096, 0), gpuerr.Invalid, "commands[0].fillLength"},
		"fill overflow":    {fillCommand(a, math.MaxUint64-3, 4, 0), gpuerr.Invalid, "commands[0].fillOffset"},
		"signal of no one": {signalCommand(a, 1), gpuerr.Stale, "commands[0].fence"},
		"wait of no one":   {waitCommand(a, 1), gpuerr.Stale, "commands[0].waitFence"},
	} {
		t.Run(name, func(t *testing.T) {
			f, release := q.Submit(r.ctx, func(p schema.GpuQueue_submit_Params) error { return commands(c.fill)(p.NewCommands) })
			require.Contains(t, refused(r, c.code, f, release), c.field)
		})
	}

	empty, release := q.Submit(r.ctx, nil)
	require.Contains(t, refused(r, gpuerr.Invalid, empty, release), "commands")
	many, release := q.Submit(r.ctx, func(p schema.GpuQueue_submit_Params) error { _, err := p.NewCommands(maxCommands + 1); return err })
	require.Contains(t, refused(r, gpuerr.Invalid, many, release), "commands")
	nothing, release := q.Completions(r.ctx, nil)
	require.Contains(t, refused(r, gpuerr.Invalid, nothing, release), "max")
	bundle, release := s.LoadProgram(r.ctx, nil)
	require.Contains(t, refused(r, gpuerr.Invalid, bundle, release), "bundle")
	garbage, release := s.LoadProgram(r.ctx, func(p schema.GpuSession_loadProgram_Params) error { return p.SetBundle(make([]byte, 5000)) })
	_, err := garbage.Struct()
	require.Error(t, err)
	release()
	run, release := s.RunProgram(r.ctx, nil)
	require.Contains(t, refused(r, gpuerr.Invalid, run, release), "program")

	// After all these errors the session works as before, and nothing was queued.
	launch, release := s.LaunchKernel(r.ctx, kernel{"vecadd_f32", 1, 1, []uint32{a, a, b}, fence}.params)
	await(r, launch, release)
	value, release := fence.Value(r.ctx, nil)
	require.Equal(t, uint64(1), await(r, value, release).Promised())
}

// Errors distinguish a closed object from one that never existed.
func TestClosedObjects(t *testing.T) {
	r := newRig(t, sessiontest.Options{})
	s := r.open()
	buf, id := r.buffer(s, 4096)
	fence, _ := r.fence(s)
	program := r.program(s, "copy")
	destroyed, release := s.DestroyBuffer(r.ctx, func(p schema.GpuMemorySession_destroyBuffer_Params) error { p.SetBuffer(id); return nil })
	await(r, destroyed, release)
	mapped, release := buf.MapReadWrite(r.ctx, nil)
	refused(r, gpuerr.Closed, mapped, release)
	closed, release := fence.Close(r.ctx, nil)
	await(r, closed, release)
	launch, release := s.LaunchKernel(r.ctx, kernel{"spin", 1, 1, nil, fence}.params)
	refused(r, gpuerr.Closed, launch, release)
	ended, release := program.Close(r.ctx, nil)
	await(r, ended, release)
	ran, release := s.RunProgram(r.ctx, func(p schema.GpuProgramSession_runProgram_Params) error { return p.SetProgram(program.AddRef()) })
	refused(r, gpuerr.Closed, ran, release)
}
