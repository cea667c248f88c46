package verify_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
	"capgpu/program/verify"
)

// TestWhy: all causes are listed, the refusal first and each once.
func TestWhy(t *testing.T) {
	b := spirvtest.New()
	b.Capability(spirv.CapabilityGeometry)
	b.Extension("SPV_KHR_ray_query")
	b.Decorate(b.Shared(b.Uint(32)), spirv.DecorationFlat)
	b.Declare(spirv.OpTypeSampler, b.ID())
	kernel(b, func() {
		b.Op(spirv.OpDPdx, b.Float(32), b.F32(1))
		b.Op(spirv.OpDPdx, b.Float(32), b.F32(2))
	})

	var says []string
	for _, d := range verify.Why(b.Bytes(), verify.DefaultLimits()) {
		says = append(says, d.Code+": "+d.Message)
	}
	require.Equal(t, []string{
		`SPV-2002: extension "SPV_KHR_ray_query" is outside the profile`,
		"SPV-2001: capability Geometry is outside the profile",
		"SPV-2013: decoration Flat is outside the profile",
		"SPV-2011: OpTypeSampler: outside the profile",
		"SPV-2010: OpDPdx: the instruction is outside the profile (2 times)",
	}, says)

	b = spirvtest.New()
	empty(b)
	require.Empty(t, verify.Why(b.Bytes(), verify.DefaultLimits()))
}

// TestNames: a refusal has the source's names beside ids.
func TestNames(t *testing.T) {
	b := spirvtest.New()
	v, first := u32s(b, 0)
	b.Name(v, "weights")
	kernel(b, func() { b.Do(spirv.OpStore, first(), v) })
	_, err := verify.Admit(b.Bytes(), verify.DefaultLimits())
	require.ErrorContains(t, err, " (weights) is not what the pointer points to")
}
