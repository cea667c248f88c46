package verify_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
	"capgpu/program/verify"
)

// TestSharedFor: the shared memory of a launch is that of a module with its workgroup
// as the default.
func TestSharedFor(t *testing.T) {
	b := spirvtest.New()
	u := b.Uint(32)
	x, y := b.Spec(7, u, 8), b.Spec(9, u, 2)
	op := b.SpecOp
	size := b.Decorate(b.SpecComposite(b.Vec(u, 3), x, y, b.U32(1)), spirv.DecorationBuiltIn, spirv.BuiltInWorkgroupSize)
	v2 := b.Vec(u, 2)

	area := op(u, spirv.OpIMul, op(u, spirv.OpCompositeExtract, size, 0), op(u, spirv.OpCompositeExtract, size, 1))
	wide := op(b.Bool(), spirv.OpUGreaterThan, area, b.U32(30))
	padded := op(u, spirv.OpIAdd, op(u, spirv.OpSelect, wide, area, b.U32(30)), op(u, spirv.OpUDiv, b.U32(64), op(u, spirv.OpISub, x, b.U32(3))))
	swapped := op(v2, spirv.OpVectorShuffle, size, size, 1, 3)
	square := op(u, spirv.OpCompositeExtract, op(v2, spirv.OpIMul, swapped, op(v2, spirv.OpCompositeInsert, b.U32(5), swapped, 0)), 1)
	row := b.Struct(u, b.Array(b.Vec(u, 3), y, 0), b.Float(32))

	arrays := []spirv.ID{b.Array(u, padded, 0), b.Array(row, x, 0), b.Array(u, square, 0), b.Array(u, b.U32(3), 0), b.Array(u, b.Spec(3, u, 1), 0)}
	vars := make([]spirv.ID, len(arrays))
	for i, a := range arrays {
		vars[i] = b.Shared(a)
	}
	unused := b.Shared(b.Array(row, square, 0))
	b.Name(unused, "unused")
	main := b.Func(b.Void())
	for i := range vars {
		b.Op(spirv.OpCopyObject, b.Pointer(spirv.StorageClassWorkgroup, arrays[i]), vars[i])
	}
	b.Return()
	b.End()
	b.Compute(main, "main", 1, 1, 1)

	p, err := verify.Admit(b.Bytes(), verify.DefaultLimits())
	require.NoError(t, err)
	require.NotNil(t, p.Info.SharedSize)
	require.Equal(t, uint64(p.Info.SharedBytes), p.Info.SharedFor(p.Info.Block))
	for _, block := range []program.Dim3{{X: 1, Y: 1, Z: 1}, {X: 4, Y: 7, Z: 1}, {X: 16, Y: 3, Z: 1}, {X: 33, Y: 1, Z: 1}, {X: 61, Y: 2, Z: 1}} {
		bundle, err := program.Encode(b.Bytes(), &program.Manifest{Block: []uint32{block.X, block.Y, block.Z}})
		require.NoError(t, err)
		other, err := verify.Admit(bundle, verify.DefaultLimits())
		require.NoError(t, err)
		require.Equal(t, uint64(other.Info.SharedBytes), p.Info.SharedFor(block), "%v", block)
	}

	// A length by a division by zero, and one of more than any memory.
	require.Greater(t, p.Info.SharedFor(program.Dim3{X: 3, Y: 1, Z: 1}), uint64(1<<30))
	require.Greater(t, p.Info.SharedFor(program.Dim3{X: 1 << 17, Y: 1, Z: 1}), uint64(program.MaxSharedBytes))
	block := program.Dim3{X: 61, Y: 2, Z: 1}
	require.Zero(t, testing.AllocsPerRun(10, func() { p.Info.SharedFor(block) }))
}

// TestSharedForSteps: a size that takes too long to compute is refused.
func TestSharedForSteps(t *testing.T) {
	b := spirvtest.New()
	u := b.Uint(32)
	x := b.Spec(0, u, 8)
	b.Decorate(b.SpecComposite(b.Vec(u, 3), x, b.U32(1), b.U32(1)), spirv.DecorationBuiltIn, spirv.BuiltInWorkgroupSize)
	n := x
	for range 1000 {
		n = b.SpecOp(u, spirv.OpIAdd, n, b.U32(1))
	}
	array := b.Array(u, n, 0)
	v := b.Shared(array)
	main := b.Func(b.Void())
	b.Op(spirv.OpCopyObject, b.Pointer(spirv.StorageClassWorkgroup, array), v)
	b.Return()
	b.End()
	b.Compute(main, "main", 1, 1, 1)
	_, err := verify.Admit(b.Bytes(), verify.DefaultLimits())
	require.ErrorContains(t, err, "SPV-2023")
}
