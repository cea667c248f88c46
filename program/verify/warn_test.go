package verify_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
	"capgpu/program/verify"
)

// TestWarnings: the kernels in testdata/warn get warnings exactly at the lines with
// such comments.
func TestWarnings(t *testing.T) {
	files, err := filepath.Glob("testdata/warn/*.comp")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	mark := regexp.MustCompile(`// (W-GPU-\d+)`)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		var want []string
		for i, line := range strings.Split(string(source), "\n") {
			if m := mark.FindStringSubmatch(line); m != nil {
				want = append(want, fmt.Sprintf("%s %s:%d", m[1], filepath.Base(file), i+1))
			}
		}

		module, err := os.ReadFile(strings.TrimSuffix(file, "comp") + "spv")
		require.NoError(t, err)
		p, err := verify.Admit(module, verify.DefaultLimits())
		require.NoError(t, err, file)
		var got []string
		for _, w := range p.Info.Warnings {
			got = append(got, w.Code+" "+w.Source)
		}

		slices.Sort(want)
		slices.Sort(got)
		require.Equal(t, want, got, "%s: %v", file, p.Info.Warnings)
	}
}

// TestSystemScope: an atomic operation of system scope is admitted with a warning.
func TestSystemScope(t *testing.T) {
	b := spirvtest.New()
	_, first := u32s(b, 0)
	kernel(b, func() {
		b.Op(spirv.OpAtomicIAdd, b.Uint(32), first(), b.U32(0), b.U32(0), b.U32(1))
	})
	module := b.Bytes()
	p, err := verify.Admit(module, verify.DefaultLimits())
	require.NoError(t, err)
	require.Len(t, p.Info.Warnings, 1)
	require.Equal(t, verify.WarnSystem, p.Info.Warnings[0].Code)
	require.Equal(t, offset(module, spirv.OpAtomicIAdd, 0), int(p.Info.Warnings[0].Off))
}

// TestOrderDependent: the order of workgroups shows if the result of an atomic
// operation on a buffer is used, or if operations do not commute.
func TestOrderDependent(t *testing.T) {
	for _, c := range []struct {
		want bool
		body func(b *builder, p, q id)
	}{
		{false, func(b *builder, p, q id) {
			b.Op(spirv.OpAtomicIAdd, b.Uint(32), p, b.U32(1), b.U32(0), b.U32(1))
			b.Op(spirv.OpAtomicIDecrement, b.Uint(32), p, b.U32(1), b.U32(0))
			b.Op(spirv.OpAtomicUMax, b.Uint(32), q, b.U32(1), b.U32(0), b.U32(1))
		}},
		{true, func(b *builder, p, q id) {
			b.Op(spirv.OpAtomicIAdd, b.Uint(32), p, b.U32(1), b.U32(0), b.U32(1))
			b.Op(spirv.OpAtomicUMax, b.Uint(32), p, b.U32(1), b.U32(0), b.U32(1))
		}},
		{true, func(b *builder, p, q id) {
			old := b.Op(spirv.OpAtomicIAdd, b.Uint(32), p, b.U32(1), b.U32(0), b.U32(1))
			b.Store(q, old)
		}},
		{true, func(b *builder, p, q id) {
			b.Op(spirv.OpAtomicExchange, b.Uint(32), p, b.U32(1), b.U32(0), b.U32(1))
		}},
	} {
		b := spirvtest.New()
		_, first := u32s(b, 0)
		_, second := u32s(b, 1)
		kernel(b, func() { c.body(b, first(), second()) })
		p, err := verify.Admit(b.Bytes(), verify.DefaultLimits())
		require.NoError(t, err)
		require.Equal(t, c.want, p.Info.OrderDependent)
	}
}

// TestNarrowShuffles: what has 8 or 16 bits is moved among lanes as other numbers are.
func TestNarrowShuffles(t *testing.T) {
	b := spirvtest.New()
	b.Capability(spirv.CapabilityGroupNonUniformShuffle, spirv.CapabilityInt8, spirv.CapabilityInt16, spirv.CapabilityFloat16)
	kernel(b, func() {
		for _, x := range []id{b.Uint(8), b.Int(8), b.Uint(16), b.Int(16), b.Float(16)} {
			b.Op(spirv.OpGroupNonUniformShuffle, x, b.U32(uint32(spirv.ScopeSubgroup)), b.Null(x), b.U32(0))
		}
	})
	p, err := verify.Admit(b.Bytes(), verify.DefaultLimits())
	require.NoError(t, err)
	require.Subset(t, p.Info.Features, []program.Feature{program.FeatureI8, program.FeatureI16, program.FeatureF16})
}
