package spirvtest_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
)

// kitchenSink uses every method of Builder that ends in a valid module.
func kitchenSink() *spirvtest.Builder {
	b := spirvtest.New()
	b.Capability(spirv.CapabilityInt64, spirv.CapabilityFloat64)
	b.Extension("SPV_KHR_storage_buffer_storage_class")
	file := b.File("sink.comp")
	u, i, f, yes := b.Uint(32), b.Int(32), b.Float(32), b.Bool()
	uvec3 := b.Vec(u, 3)

	data := b.Name(b.Buffer(0, f, 4), "data")
	head := b.Block([]uint32{0, 16}, b.Vec(f, 4), b.RuntimeArray(u, 4))
	b.Name(head, "Head")
	b.MemberName(head, 1, "tail")
	b.BufferOf(1, head)
	args := b.Name(b.Push([]uint32{0, 4}, u, f), "args")
	gid := b.Input(uvec3, spirv.BuiltInGlobalInvocationId)
	length := b.Spec(3, u, 64)
	b.SpecOp(u, spirv.OpIAdd, length, b.U32(1))
	fast := b.SpecBool(4, true)
	part := b.Shared(b.Array(f, length, 0))
	size := b.SpecComposite(uvec3, b.Spec(0, u, 64), b.Spec(1, u, 1), b.Spec(2, u, 1))
	b.Decorate(size, spirv.DecorationBuiltIn, spirv.BuiltInWorkgroupSize)
	b.Composite(b.Vec(f, 2), b.F32(1), b.F32(-0.5))
	b.Null(b.Vec(f, 4))
	b.I32(-1)
	b.U64(1 << 40)
	b.I64(-1 << 40)
	b.F64(0.1)
	b.BoolConst(false)

	twice := b.Name(b.Func(f, f, b.Pointer(spirv.StorageClassFunction, f)), "twice")
	b.Store(b.Param(1), b.Param(0))
	b.ReturnValue(b.Op(spirv.OpFAdd, f, b.Param(0), b.Param(0)))
	b.End()

	main := b.Name(b.Func(b.Void()), "main")
	b.Line(file, 12, 3)
	id := b.Op(spirv.OpCompositeExtract, u, b.Load(uvec3, gid), 0)
	sum := b.Local(f, b.F32(0))
	k := b.Local(u)
	b.Store(k, id)
	n := b.Load(u, b.Access(spirv.StorageClassPushConstant, u, args, b.U32(0)))
	b.Loop(func() spirv.ID {
		return b.Op(spirv.OpULessThan, yes, b.Load(u, k), n)
	}, func(brk, cont spirv.ID) bool {
		p := b.Access(spirv.StorageClassStorageBuffer, f, data, b.U32(0), b.Load(u, k))
		v := b.Call(f, twice, b.Load(f, p), sum)
		b.If(b.Op(spirv.OpFOrdLessThan, yes, v, b.F32(0)), func() bool {
			b.Branch(cont)
			return false
		}, nil)
		b.If(fast, func() bool {
			b.Store(sum, b.Ext(spirv.GLSLFClamp, f, v, b.F32(-1), b.F32(1)))
			return true
		}, func() bool {
			b.Branch(brk)
			return false
		})
		return true
	}, func() {
		b.Store(k, b.Op(spirv.OpIAdd, u, b.Load(u, k), b.U32(64)))
	})

	slot := b.Access(spirv.StorageClassWorkgroup, f, part, b.Op(spirv.OpUMod, u, id, length))
	b.Store(slot, b.Load(f, sum))
	b.Barrier()
	b.Switch(id, func() bool { return true },
		spirvtest.Case{Value: 1, Body: func() bool {
			b.Store(sum, b.Op(spirv.OpConvertSToF, f, b.Op(spirv.OpBitcast, i, id)))
			return true
		}},
		spirvtest.Case{Value: 7, Body: func() bool { b.Return(); return false }})

	b.Store(b.Access(spirv.StorageClassStorageBuffer, f, data, b.U32(0), id), b.Load(f, sum))
	b.Return()
	b.End()
	b.Compute(main, "main", 0, 0, 0)
	b.Mode(main, spirv.ExecutionModeLocalSize, 64, 1, 1)
	return b
}

func TestBuilderParses(t *testing.T) {
	m, err := spirv.Parse(kitchenSink().Bytes())
	require.NoError(t, err)
	require.Len(t, m.Functions, 2)
	require.Equal(t, "twice", m.Name(m.Functions[0].ID()))
	require.Equal(t, "sink.comp:12", m.Source(m.Functions[1].Blocks[0].Insts[2].Line))
}

func TestBuilderKeepsTypesOnce(t *testing.T) {
	b := spirvtest.New()
	require.Equal(t, b.Uint(32), b.Uint(32))
	require.NotEqual(t, b.Uint(32), b.Int(32))
	require.Equal(t, b.RuntimeArray(b.Uint(32), 4), b.RuntimeArray(b.Uint(32), 4))
	require.NotEqual(t, b.RuntimeArray(b.Uint(32), 4), b.RuntimeArray(b.Uint(32), 8))
	require.NotEqual(t, b.Struct(b.Uint(32)), b.Struct(b.Uint(32)))
	require.Equal(t, b.F32(1), b.F32(1))
	require.Equal(t, b.U32(1), b.U32(1))
	require.NotEqual(t, b.U32(1), b.I32(1))
}

// The builder's modules are valid by Khronos's own validator.
func TestBuilderIsValid(t *testing.T) {
	validate(t, kitchenSink().Bytes())

	b := spirvtest.New() // the example of the package's comment
	x := b.Buffer(0, b.Float(32), 4)
	id := b.Input(b.Vec(b.Uint(32), 3), spirv.BuiltInGlobalInvocationId)
	main := b.Func(b.Void())
	i := b.Op(spirv.OpCompositeExtract, b.Uint(32), b.Load(b.Vec(b.Uint(32), 3), id), 0)
	p := b.Access(spirv.StorageClassStorageBuffer, b.Float(32), x, b.U32(0), i)
	v := b.Load(b.Float(32), p)
	b.Store(p, b.Op(spirv.OpFAdd, b.Float(32), v, v))
	b.Return()
	b.End()
	b.Compute(main, "main", 64, 1, 1)
	validate(t, b.Bytes())
}

func validate(t *testing.T, module []byte) {
	t.Helper()
	if _, err := exec.LookPath("spirv-val"); err != nil {
		t.Skip("SKIPPED: spirv-val is not here; install Debian's spirv-tools")
	}
	path := filepath.Join(t.TempDir(), "module.spv")
	require.NoError(t, os.WriteFile(path, module, 0o600))
	out, err := exec.Command("spirv-val", "--target-env", "vulkan1.1", path).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestMutateIsDeterministicAndBreaks(t *testing.T) {
	module := kitchenSink().Bytes()
	before := bytes.Clone(module)
	var refused, changed int
	a, b := rand.New(rand.NewPCG(1, 2)), rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		x := spirvtest.Mutate(a, module)
		require.Equal(t, x, spirvtest.Mutate(b, module))
		if !bytes.Equal(x, module) {
			changed++
		}
		if _, err := spirv.Parse(x); err != nil {
			refused++
		}
	}

	require.Equal(t, before, module)
	require.Greater(t, changed, 1700)
	// Enough must get past the parser, or the later stages are never tested.
	require.Greater(t, refused, 400)
	require.Less(t, refused, 1600)
	t.Logf("%d of 2000 refused by Parse, %d changed", refused, changed)
}

func TestMutateTakesAnyBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for n := range 64 {
		junk := make([]byte, n)
		for i := range junk {
			junk[i] = byte(rng.Uint32())
		}
		for range 50 {
			junk = spirvtest.Mutate(rng, junk)
			_, _ = spirv.Parse(junk)
		}
	}
}
