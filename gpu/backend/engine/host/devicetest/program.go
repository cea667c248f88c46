package devicetest

import (
	"embed"
	"encoding/binary"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/engine/host"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/outcome"
	"capgpu/program"
	"capgpu/program/instrument"
	"capgpu/program/lane"
	"capgpu/program/library"
	"capgpu/program/spirv"
	"capgpu/program/verify"
)

// own are the kernels of the suite, compiled from the .comp beside each.
//
//go:embed count.spv await.spv leave.spv show.spv
var own embed.FS

// compiled is a program on the device under test.
type compiled struct {
	host.Pipeline
	verified     *verify.Program
	instrumented *instrument.Program
}

// program compiles a kernel of the suite or of the library, once.
func (k *kit) program(name string) *compiled {
	k.Helper()
	if c := k.programs[name]; c != nil {
		return c
	}

	v := k.admitted(name)
	i, err := instrument.Instrument(v)
	require.NoError(k, err)

	p, err := k.d.Compile(pipelineOf(v, i))
	require.NoError(k, err, "compile %s", name)
	c := &compiled{p, v, i}
	k.programs[name] = c
	k.owned(p)
	return c
}

// of is the program of a launch.
func (k *kit) of(e host.Entry) *compiled {
	k.Helper()
	for _, c := range k.programs {
		if c.Pipeline == e.Pipeline {
			return c
		}
	}
	require.FailNow(k, "a launch of no program")
	return nil
}

// admitted is a kernel of the suite or of the library, as the verifier sees it.
func (k *kit) admitted(name string) *verify.Program {
	k.Helper()
	bundle, ok := library.Bundle(name)
	if !ok {
		module, err := own.ReadFile(name + ".spv")
		require.NoError(k, err)
		bundle, err = program.Encode(module, nil)
		require.NoError(k, err)
	}
	v, err := verify.Admit(bundle, verify.DefaultLimits())
	require.NoError(k, err)
	return v
}

// pipelineOf is a program with its default workgroup.
func pipelineOf(v *verify.Program, i *instrument.Program) *wire.Pipeline {
	p := &wire.Pipeline{
		Module: i.Module, Entry: v.Info.Entry,
		Bindings: i.Binding, PushBytes: i.EntryOff + 4,
		Block: v.Info.Block, SharedBytes: v.Info.SharedBytes,
	}

	specID := func(id spirv.ID) (uint32, bool) {
		d, ok := v.Module.Decoration(id, spirv.DecorationSpecId)
		if !ok {
			return 0, false
		}
		return d.Args[2], true
	}
	for id, value := range v.Constants {
		if n, ok := specID(id); ok {
			p.Constants = append(p.Constants, program.Constant{ID: n, Value: value})
		}
	}
	for id, dimension := range v.Sizes {
		if n, ok := specID(id); ok {
			size := [3]uint32{v.Info.Block.X, v.Info.Block.Y, v.Info.Block.Z}[dimension]
			p.Constants = append(p.Constants, program.Constant{ID: n, Value: uint64(size)})
		}
	}
	if n, ok := specID(v.Dynamic); ok && v.Dynamic != 0 {
		p.Constants = append(p.Constants, program.Constant{ID: n, Value: 1})
		p.SharedBytes += v.Info.DynamicElementBytes
	}
	return p
}

// launchOf is a launch over a grid of n workgroups.
func (k *kit) launchOf(name string, n int, inline []byte, spans ...span) host.Entry {
	k.Helper()
	return k.gridOf(name, program.Dim3{X: uint32(n), Y: 1, Z: 1}, inline, spans...)
}

func (k *kit) gridOf(name string, grid program.Dim3, inline []byte, spans ...span) host.Entry {
	k.Helper()
	c := k.program(name)
	push := make([]byte, c.instrumented.EntryOff)
	copy(push, inline)
	e := host.Entry{Pipeline: c.Pipeline, Entry: &wire.Entry{Op: wire.OpLaunch, Grid: grid, Push: push}}
	bind(&e, spans...)
	for _, b := range c.verified.Info.Bindings {
		e.Access = append(e.Access, b.Access)
	}
	require.Len(k, e.Spans, len(e.Access), "bindings of %s", name)
	return e
}

// onLane runs a launch on the lane engine, over copies of what its spans have now, and
// returns them and the trap, if there is one.
func (k *kit) onLane(e host.Entry, contents [][]byte) ([][]byte, outcome.Trap) {
	k.Helper()
	c := k.of(e)
	kernel, err := lane.Compile(c.verified, lane.Options{Block: c.verified.Info.Block, SubgroupSize: k.subgroup()})
	require.NoError(k, err)
	l := lane.Launch{Grid: e.Grid, Inline: e.Push}
	for _, b := range contents {
		l.Bindings = append(l.Bindings, append([]byte{}, b...))
	}
	r := kernel.NewWorker().Run(&l, 0, e.Grid.Count(), nil)
	return l.Bindings, r.Trap
}

// subgroup is the size of the device's subgroups, or the nearest that the lane engine has.
func (k *kit) subgroup() int {
	for _, n := range []int{8, 16, 32} {
		if k.about.SubgroupSize <= uint32(n) {
			return n
		}
	}
	return 64
}

// saxpy adds x to y: both are of 32-bit floats.
func (k *kit) saxpy(x, y span) host.Entry {
	k.Helper()
	one := binary.LittleEndian.AppendUint32(nil, 0x3F800000)
	return k.launchOf("saxpy_f32", 4, one, x, y)
}
