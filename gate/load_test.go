package gate

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/driver/session/sessiontest"
	"capgpu/gpuerr"
	nouns "capgpu/program"
	"capgpu/program/library"
	"capgpu/schema"
)

// module is vecadd_f32 as a bare module: a program that the device does not have
// built in.
func module(t *testing.T) []byte {
	t.Helper()
	bundle, ok := library.Bundle("vecadd_f32")
	require.True(t, ok)
	b, err := nouns.Parse(bundle)
	require.NoError(t, err)
	return b.SPIRV
}

func bundleOf(b []byte) func(schema.GpuSession_loadProgram_Params) error {
	return func(p schema.GpuSession_loadProgram_Params) error { return p.SetBundle(b) }
}

func (r *rig) load(s schema.GpuSession, bundle []byte) schema.GpuProgram {
	r.t.Helper()
	f, release := s.LoadProgram(r.ctx, bundleOf(bundle))
	return await(r, f, release).Program()
}

func (r *rig) info(p schema.GpuProgram) schema.ProgramInfo {
	r.t.Helper()
	f, release := p.Info(r.ctx, nil)
	info, err := await(r, f, release).Info()
	require.NoError(r.t, err)
	return info
}

// restricted is a program session below s.
func (r *rig) restricted(s schema.GpuSession, programs ...string) schema.GpuProgramSession {
	r.t.Helper()
	f, release := s.Restrict(r.ctx, func(p schema.GpuMemorySession_restrict_Params) error {
		policy, err := p.NewPolicy()
		if err != nil {
			return err
		}
		policy.SetFacet(schema.SessionFacet_program)
		list, err := policy.NewPrograms(int32(len(programs)))
		for i, name := range programs {
			if err == nil {
				err = list.Set(i, name)
			}
		}
		return err
	})
	return schema.GpuProgramSession(await(r, f, release).Session())
}

func (r *rig) run(s schema.GpuProgramSession, p schema.GpuProgram, fence schema.GpuFence, buffers ...uint32) (schema.GpuProgramSession_runProgram_Results_Future, func()) {
	return s.RunProgram(r.ctx, func(a schema.GpuProgramSession_runProgram_Params) error {
		list, err := a.NewBindings(int32(len(buffers)))
		if err != nil {
			return err
		}
		for i, id := range buffers {
			list.At(i).SetBuffer(id)
		}
		if err := a.SetFence(fence.AddRef()); err != nil {
			return err
		}
		return a.SetProgram(p.AddRef())
	})
}

// sum runs a program that adds, and checks the result.
func (r *rig) sum(s schema.GpuProgramSession, p schema.GpuProgram) {
	r.t.Helper()
	full := schema.GpuSession(s) // for the methods that all sessions have
	var ids [3]uint32
	var mems [3][]byte
	for i := range ids {
		var b schema.GpuBuffer
		b, ids[i] = r.buffer(full, 4096)
		mems[i] = r.mapped(b)
	}

	for i := range 1024 {
		binary.LittleEndian.PutUint32(mems[0][4*i:], math.Float32bits(float32(i)))
		binary.LittleEndian.PutUint32(mems[1][4*i:], math.Float32bits(0.5))
	}

	fence, _ := r.fence(full)
	launch, release := r.run(s, p, fence, ids[:]...)
	await(r, launch, release)
	wait, release := fence.Wait(r.ctx, waitFor(10*time.Second))
	require.True(r.t, await(r, wait, release).Ok())
	for i := range 1024 {
		require.Equal(r.t, float32(i)+0.5, math.Float32frombits(binary.LittleEndian.Uint32(mems[2][4*i:])))
	}
}

func TestLoadProgram(t *testing.T) {
	r := newRig(t, sessiontest.Options{})
	s := r.open()
	first, second := r.load(s, module(t)), r.load(s, module(t))
	info, same := r.info(first), r.info(second)
	digest, err := info.Digest()
	require.NoError(t, err)
	again, err := same.Digest()
	require.NoError(t, err)
	require.Len(t, digest, 32)
	require.Equal(t, digest, again, "identical bytes are one program")
	require.True(t, info.BlockFree())
	require.EqualValues(t, 256, info.BlockX())
	bindings, err := info.Bindings()
	require.NoError(t, err)
	require.Equal(t, 3, bindings.Len())
	kind, err := bindings.At(2).Type()
	require.NoError(t, err)
	require.Equal(t, "f32", kind)
	require.Equal(t, schema.BindingAccess_write, bindings.At(2).Access())
	r.sum(schema.GpuProgramSession(s), first)

	// A program can be named by its digest as well.
	name := fmt.Sprintf("sha256:%x", digest)
	r.sum(schema.GpuProgramSession(s), r.program(s, name))
	_, a := r.buffer(s, 4096)
	fence, _ := r.fence(s)
	launch, release := s.LaunchKernel(r.ctx, kernel{name, 2, 64, []uint32{a, a, a}, fence}.params)
	await(r, launch, release)
	wait, release := fence.Wait(r.ctx, waitFor(10*time.Second))
	require.True(t, await(r, wait, release).Ok())

	for what, bad := range map[string][]byte{"garbage": []byte("no program at all"), "half a module": module(t)[:400]} {
		f, release := s.LoadProgram(r.ctx, bundleOf(bad))
		require.Contains(t, refused(r, gpuerr.Program, f, release), "SPV-", what)
	}

	for _, most := range []int{nouns.MaxBundleBytes} {
		f, release := s.LoadProgram(r.ctx, bundleOf(append(module(t), make([]byte, most-len(module(t)))...)))
		refused(r, gpuerr.Program, f, release)
	}

	huge, release := s.LoadProgram(r.ctx, bundleOf(make([]byte, nouns.MaxBundleBytes+1)))
	refused(r, gpuerr.Invalid, huge, release)
}

// A session that cannot load programs runs those that its parents pass on, until
// they take them back.
func TestProgramsAreHandedDown(t *testing.T) {
	r := newRig(t, sessiontest.Options{})
	s := r.open()
	loaded, named := r.load(s, module(t)), r.program(s, "vecadd_f32")
	child := r.restricted(s)
	narrow := r.restricted(s, "copy")
	grandchild := r.restricted(schema.GpuSession(child))
	for range 2 {
		r.sum(child, loaded)
		r.sum(child, named)
		r.sum(grandchild, loaded)
	}

	own := r.program(schema.GpuSession(child), "vecadd_f32")
	fence, _ := r.fence(s)
	_, a := r.buffer(s, 4096)
	up, release := r.run(schema.GpuProgramSession(s), own, fence, a, a, a)
	require.Contains(t, refused(r, gpuerr.Invalid, up, release), "program")
	for _, p := range []schema.GpuProgram{loaded, named} {
		fence, _ := r.fence(schema.GpuSession(narrow))
		_, a := r.buffer(schema.GpuSession(narrow), 4096)
		f, release := r.run(narrow, p, fence, a, a, a)
		refused(r, gpuerr.NoProgram, f, release)
	}

	other := r.open()
	fence, _ = r.fence(other)
	_, a = r.buffer(other, 4096)
	f, release := r.run(schema.GpuProgramSession(other), loaded, fence, a, a, a)
	require.Contains(t, refused(r, gpuerr.Invalid, f, release), "another session")

	closed, release := loaded.Close(r.ctx, nil)
	await(r, closed, release)
	fence, _ = r.fence(schema.GpuSession(child))
	_, a = r.buffer(schema.GpuSession(child), 4096)
	f, release = r.run(child, loaded, fence, a, a, a)
	refused(r, gpuerr.Closed, f, release)
	r.sum(child, named)
}
