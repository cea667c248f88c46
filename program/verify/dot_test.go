package verify_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
	"capgpu/program/verify"
)

// dots declares what products of vectors of integers need.
func dots(b *builder, more ...spirv.Capability) {
	b.Capability(append([]spirv.Capability{spirv.CapabilityDotProduct}, more...)...)
	b.Extension("SPV_KHR_integer_dot_product")
}

var dotCases = []refused{
	{verify.CodeNeeds, spirv.OpCapability, -1, "integer_dot_product", func(b *builder) {
		b.Capability(spirv.CapabilityDotProduct)
		empty(b)
	}},
	{verify.CodeNeeds, spirv.OpSDot, 0, "DotProduct", func(b *builder) {
		kernel(b, func() { b.Op(spirv.OpSDot, b.Int(32), b.I32(1), b.I32(1), uint32(0)) })
	}},
	{verify.CodeNeeds, spirv.OpSDot, 0, "DotProductInput4x8BitPacked", func(b *builder) {
		dots(b)
		kernel(b, func() { b.Op(spirv.OpSDot, b.Int(32), b.I32(1), b.I32(1), uint32(0)) })
	}},
	{verify.CodeNeeds, spirv.OpSDot, 0, "DotProductInputAll", func(b *builder) {
		dots(b)
		v := b.Null(b.Vec(b.Int(32), 2))
		kernel(b, func() { b.Op(spirv.OpSDot, b.Int(32), v, v) })
	}},
	{verify.CodeOperand, spirv.OpSDot, 0, "no like vectors", func(b *builder) {
		dots(b)
		kernel(b, func() { b.Op(spirv.OpSDot, b.Int(32), b.I32(1), b.I32(1)) })
	}},
	{verify.CodeOperand, spirv.OpUDot, 0, "components with a sign", func(b *builder) {
		dots(b, spirv.CapabilityDotProductInputAll)
		v := b.Null(b.Vec(b.Int(32), 2))
		kernel(b, func() { b.Op(spirv.OpUDot, b.Uint(32), v, v) })
	}},
	{verify.CodeResult, spirv.OpUDot, 0, "an unsigned integer", func(b *builder) {
		dots(b, spirv.CapabilityDotProductInput4x8BitPacked)
		kernel(b, func() { b.Op(spirv.OpUDot, b.Int(32), b.U32(1), b.U32(1), uint32(0)) })
	}},
	{verify.CodeOperand, spirv.OpSDotAccSat, 0, "of the result's type", func(b *builder) {
		dots(b, spirv.CapabilityDotProductInput4x8BitPacked)
		kernel(b, func() { b.Op(spirv.OpSDotAccSat, b.Int(32), b.I32(1), b.I32(1), b.U32(1), uint32(0)) })
	}},
}

// TestDotFeature: a device has to have the feature.
func TestDotFeature(t *testing.T) {
	b := spirvtest.New()
	dots(b, spirv.CapabilityDotProductInput4x8BitPacked)
	kernel(b, func() { b.Op(spirv.OpSUDotAccSat, b.Int(32), b.I32(1), b.U32(1), b.I32(1), uint32(0)) })
	p, err := verify.Admit(b.Bytes(), verify.DefaultLimits())
	require.NoError(t, err)
	require.Equal(t, []program.Feature{program.FeatureDot}, p.Info.Features)
}
