package verify_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
	"capgpu/program/verify"
)

func bytesOf(n uint32) *uint32 { return &n }

// described is a kernel with an example of everything that manifests describe.
func described() []byte {
	b := spirvtest.New()
	b.Capability(spirv.CapabilityInt64)
	u := b.Uint(32)
	in := b.Name(b.Buffer(0, b.Float(32), 4), "in")
	out := b.Name(b.Buffer(1, b.Uint(64), 8), "res")
	b.Decorate(in, spirv.DecorationNonWritable)
	push := b.Block([]uint32{0, 8}, b.Float(32), b.Vec(u, 2))
	b.MemberName(push, 0, "scale")
	b.MemberName(push, 1, "size")
	b.Global(spirv.StorageClassPushConstant, push)
	size := b.SpecComposite(b.Vec(u, 3), b.Spec(0, u, 32), b.U32(2), b.U32(1))
	b.Decorate(size, spirv.DecorationBuiltIn, spirv.BuiltInWorkgroupSize)
	s := b.Shared(b.Array(u, b.U32(16), 0))
	dynamic := b.Shared(b.Array(b.Vec(u, 2), b.Spec(3, u, 8), 0))
	b.Spec(20, u, 5)
	b.SpecBool(21, true)
	main := b.Func(b.Void())
	zero := b.U32(0)
	b.Load(b.Float(32), b.Access(spirv.StorageClassStorageBuffer, b.Float(32), in, zero, zero))
	b.Store(b.Access(spirv.StorageClassStorageBuffer, b.Uint(64), out, zero, zero), b.U64(7))
	b.Store(b.Access(spirv.StorageClassWorkgroup, u, s, zero), zero)
	b.Store(b.Access(spirv.StorageClassWorkgroup, u, dynamic, zero, zero), zero)
	b.Return()
	b.End()
	b.Compute(main, "main", 1, 1, 1)
	return b.Bytes()
}

func admit(t *testing.T, module []byte, m *program.Manifest) (*verify.Program, error) {
	bundle, err := program.Encode(module, m)
	require.NoError(t, err)
	return verify.Admit(bundle, verify.DefaultLimits())
}

// TestDerived: fields that a manifest leaves out come from the module.
func TestDerived(t *testing.T) {
	p, err := admit(t, described(), nil)
	require.NoError(t, err)
	i := p.Info
	require.Equal(t, "main", i.Entry)
	require.Equal(t, []program.Binding{{Name: "in", Access: program.Read, Type: "f32"}, {Name: "res", Access: program.Write, Type: "u64"}}, i.Bindings)
	require.Equal(t, []program.Field{{Name: "scale", Type: "f32"}, {Name: "size_x", Type: "u32", Off: 8}, {Name: "size_y", Type: "u32", Off: 12}}, i.Inline)
	require.Equal(t, uint32(16), i.InlineBytes)
	require.Equal(t, program.Dim3{X: 32, Y: 2, Z: 1}, i.Block)
	require.True(t, i.BlockFree)
	require.NotZero(t, p.BlockIDs[0])
	require.Zero(t, p.BlockIDs[1])
	require.Equal(t, uint32(64), i.SharedBytes)
	require.Equal(t, uint32(8), i.DynamicElementBytes)
	require.NotZero(t, p.Dynamic)
	require.Len(t, p.Shared, 2)
	require.Equal(t, []program.Feature{program.FeatureI64}, i.Features)
	require.False(t, i.OrderDependent)
}

// TestAgreeing: a manifest that agrees adds the facts that a module cannot express.
func TestAgreeing(t *testing.T) {
	m := &program.Manifest{
		Name: "described", Entry: "main",
		Bindings: []program.Binding{{Name: "x", Access: program.Read, Type: "f32"}, {Name: "y", Access: program.ReadWrite}, {Name: "spare", Access: program.Write}},
		Inline:   []program.Field{{Name: "scale", Type: "f32"}, {Name: "size_x", Type: "u32", Off: 8}, {Name: "size_y", Type: "u32", Off: 12}},
		Block:    []uint32{128, 2}, SharedBytes: bytesOf(64),
		Features:  []program.Feature{program.FeatureI64, program.FeatureF64},
		Constants: []program.Constant{{ID: 20, Value: 9}, {ID: 21, Value: 0}},
		Grid:      &program.Grid{Cover: "y", ElementBytes: 8},
		Tolerance: &program.Tolerance{Abs: 1e-3}, Tags: []string{"cpu"},
	}

	p, err := admit(t, described(), m)
	require.NoError(t, err)
	require.Equal(t, m.Bindings[0], p.Info.Bindings[0])
	require.Equal(t, program.Binding{Name: "y", Access: program.ReadWrite, Type: "u64"}, p.Info.Bindings[1])
	require.Equal(t, m.Bindings[2], p.Info.Bindings[2])
	require.Zero(t, p.Bindings[2])
	require.Equal(t, program.Dim3{X: 128, Y: 2, Z: 1}, p.Info.Block)
	require.Len(t, p.Constants, 2)
	require.Equal(t, []program.Feature{program.FeatureF64, program.FeatureI64}, p.Info.Features)
	require.Equal(t, *m.Grid, p.Info.Grid)
	require.Equal(t, *m.Tolerance, p.Info.Tolerance)
	require.Equal(t, m.Tags, p.Info.Tags)
}

// TestContradictions: a manifest that contradicts the module is refused, and the
// message names the field.
func TestContradictions(t *testing.T) {
	in, res := program.Binding{Name: "in", Access: program.Read}, program.Binding{Name: "res", Access: program.Write}
	scale := program.Field{Name: "scale", Type: "f32"}
	for _, c := range []struct {
		code verify.Code
		says string
		m    program.Manifest
	}{
		{verify.CodeManifestEntry, `entry is "start"`, program.Manifest{Entry: "start"}},
		{verify.CodeManifestBindings, "bindings are 1", program.Manifest{Bindings: []program.Binding{in}}},
		{verify.CodeManifestBindings, "access of res is read", program.Manifest{Bindings: []program.Binding{in, {Name: "res", Access: program.Read}}}},
		{verify.CodeManifestBindings, "decorations rule out write", program.Manifest{Bindings: []program.Binding{{Name: "in", Access: program.ReadWrite}, res}}},
		{verify.CodeManifestBindings, `type of in is "u32"`, program.Manifest{Bindings: []program.Binding{{Name: "in", Access: program.Read, Type: "u32"}, res}}},
		{verify.CodeManifestBindings, `name "res" for binding 0`, program.Manifest{Bindings: []program.Binding{{Name: "res", Access: program.Read}, {Name: "in", Access: program.Write}}}},
		{verify.CodeManifestInline, "inline has 1 fields", program.Manifest{Inline: []program.Field{scale}}},
		{verify.CodeManifestInline, "field size_x is i32", program.Manifest{Inline: []program.Field{scale, {Name: "size_x", Type: "i32", Off: 8}, {Name: "size_y", Type: "u32", Off: 12}}}},
		{verify.CodeManifestBlock, "block is [32 4]", program.Manifest{Block: []uint32{32, 4}}},
		{verify.CodeManifestShared, "sharedBytes is 60", program.Manifest{SharedBytes: bytesOf(60)}},
		{verify.CodeManifestFeatures, "lack i64", program.Manifest{Features: []program.Feature{program.FeatureF64}}},
		{verify.CodeManifestConstants, "no SpecId 30", program.Manifest{Constants: []program.Constant{{ID: 30}}}},
		{verify.CodeManifestConstants, "no value of its type", program.Manifest{Constants: []program.Constant{{ID: 21, Value: 2}}}},
	} {
		_, err := admit(t, described(), &c.m)
		var r *program.Refusal
		require.ErrorAs(t, err, &r, c.says)
		require.Equal(t, c.code, r.Code, "%v", r)
		require.Contains(t, r.Message, c.says)
	}
}

// FuzzAdmit: no bytes make Admit panic, and every refusal has a code.
func FuzzAdmit(f *testing.F) {
	for _, module := range modules(f) {
		f.Add(module)
	}

	bundle, err := program.Encode(described(), &program.Manifest{Name: "described", SharedBytes: bytesOf(64)})
	require.NoError(f, err)
	f.Add(bundle)
	for _, list := range [][]refused{outsideCases, invalidCases, flowCases, machineCases, pointerCases, dotCases} {
		for _, c := range list {
			b := spirvtest.New()
			c.build(b)
			f.Add(b.Bytes())
		}
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := verify.Admit(data, verify.DefaultLimits())
		if err == nil {
			require.NotNil(t, p.Entry)
			require.Equal(t, len(p.Bindings), len(p.Info.Bindings))
			return
		}
		var r *program.Refusal
		require.ErrorAs(t, err, &r)
		require.NotEmpty(t, r.Code)
	})
}
