package verify_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
	"capgpu/program/verify"
)

// lengthOf is the value of a constant: the length of a shared array that it makes.
func lengthOf(t *testing.T, constant func(b *builder) id, constants ...program.Constant) uint32 {
	b := spirvtest.New()
	s := b.Shared(b.Array(b.Uint(32), constant(b), 0))
	kernel(b, func() { b.Store(b.Access(spirv.StorageClassWorkgroup, b.Uint(32), s, b.U32(0)), b.U32(1)) })
	bundle, err := program.Encode(b.Bytes(), &program.Manifest{Constants: constants})
	require.NoError(t, err)
	p, err := verify.Admit(bundle, verify.DefaultLimits())
	require.NoError(t, err)
	return p.Info.SharedBytes / 4
}

// TestSpecConstantOp: operations on specialisation constants have the same values
// as the instructions.
func TestSpecConstantOp(t *testing.T) {
	for _, c := range []struct {
		op   spirv.Opcode
		a, b int32
		want int32
	}{
		{spirv.OpIAdd, 7, 5, 12}, {spirv.OpISub, 7, 5, 2}, {spirv.OpIMul, 7, 5, 35},
		{spirv.OpSDiv, -17, -5, 3}, {spirv.OpSRem, 17, -5, 2}, {spirv.OpSMod, -17, 5, 3}, {spirv.OpSMod, -10, 5, 0},
		{spirv.OpSDiv, math.MinInt32, -1, math.MinInt32},
		{spirv.OpShiftLeftLogical, 3, 2, 12}, {spirv.OpShiftLeftLogical, 3, 34, 12},
		{spirv.OpShiftRightLogical, -1, 28, 15}, {spirv.OpShiftRightArithmetic, 80, 3, 10}, {spirv.OpShiftRightArithmetic, -80, 3, -10},
		{spirv.OpBitwiseAnd, 12, 10, 8}, {spirv.OpBitwiseOr, 12, 10, 14}, {spirv.OpBitwiseXor, 12, 10, 6},
	} {
		got := lengthOf(t, func(b *builder) id {
			i, one := b.Int(32), b.I32(1)
			x := b.SpecOp(i, c.op, b.Spec(10, i, c.a), b.I32(c.b))
			right := b.SpecOp(b.Bool(), spirv.OpIEqual, x, b.I32(c.want))
			return b.SpecOp(i, spirv.OpSelect, right, b.I32(2), one)
		})
		require.Equal(t, uint32(2), got, "%v %d, %d is not %d", c.op, c.a, c.b, c.want)
	}
	for _, c := range []struct {
		op   spirv.Opcode
		want bool
	}{
		{spirv.OpULessThan, false}, {spirv.OpSLessThan, true}, {spirv.OpUGreaterThan, true}, {spirv.OpSGreaterThan, false},
		{spirv.OpULessThanEqual, false}, {spirv.OpSLessThanEqual, true}, {spirv.OpUGreaterThanEqual, true}, {spirv.OpSGreaterThanEqual, false},
		{spirv.OpIEqual, false}, {spirv.OpINotEqual, true},
	} {
		got := lengthOf(t, func(b *builder) id {
			i := b.Int(32)
			yes := b.SpecOp(b.Bool(), c.op, b.Spec(10, i, int32(-1)), b.I32(1))
			yes = b.SpecOp(b.Bool(), spirv.OpLogicalAnd, yes, b.SpecOp(b.Bool(), spirv.OpLogicalNot, b.SpecBool(11, false)))
			return b.SpecOp(i, spirv.OpSelect, yes, b.I32(2), b.I32(1))
		})
		require.Equal(t, c.want, got == 2, "%v", c.op)
	}
}

// TestSpecConstantParts: vectors are computed by component, split and combined; the
// manifest's values count.
func TestSpecConstantParts(t *testing.T) {
	build := func(b *builder) id {
		u := b.Uint(32)
		uvec2 := b.Vec(u, 2)
		v := b.SpecComposite(uvec2, b.Spec(10, u, 3), b.U32(5))
		v = b.SpecOp(uvec2, spirv.OpIMul, v, v)                                 // 9, 25
		v = b.SpecOp(uvec2, spirv.OpVectorShuffle, v, b.Null(uvec2), 1, 0)      // 25, 9
		v = b.SpecOp(uvec2, spirv.OpCompositeInsert, b.U32(4), v, 0)            // 4, 9
		array := b.SpecComposite(b.Array(uvec2, b.U32(2), 0), b.Null(uvec2), v) // (0, 0), (4, 9)
		return b.SpecOp(u, spirv.OpIAdd, b.SpecOp(u, spirv.OpCompositeExtract, array, 1, 1), b.SpecOp(u, spirv.OpCompositeExtract, array, 1, 0))
	}

	require.Equal(t, uint32(13), lengthOf(t, build))
	require.Equal(t, uint32(53), lengthOf(t, build, program.Constant{ID: 10, Value: 7}))
	wide := func(b *builder) id {
		b.Capability(spirv.CapabilityInt64, spirv.CapabilityInt16)
		n := b.SpecOp(b.Int(64), spirv.OpSConvert, b.Spec(10, b.Int(16), 0xFFFFFFFE)) // −2
		return b.SpecOp(b.Int(64), spirv.OpSNegate, n)
	}

	require.Equal(t, uint32(2), lengthOf(t, wide))
}
