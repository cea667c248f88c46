package lane_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/lane"
	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
	"capgpu/program/verify"
)

// triple adds a kernel that multiplies each word of binding 0 by 3; before runs in its
// body first, with the word's pointer.
func triple(b *spirvtest.Builder, buffer spirv.ID, before func(p spirv.ID)) spirv.ID {
	u := b.Uint(32)
	id := b.Input(b.Vec(u, 3), spirv.BuiltInGlobalInvocationId)
	main := b.Func(b.Void())
	i := b.Op(spirv.OpCompositeExtract, u, b.Load(b.Vec(u, 3), id), 0)
	p := b.Access(spirv.StorageClassStorageBuffer, u, buffer, b.U32(0), i)
	before(p)
	b.Store(p, b.Op(spirv.OpIMul, u, b.Load(u, p), b.U32(3)))
	return main
}

// runModule runs a module on the numbers 0 to 31.
func runModule(t *testing.T, module []byte, m *program.Manifest) []byte {
	bundle, err := program.Encode(module, m)
	require.NoError(t, err)
	p, err := verify.Admit(bundle, verify.DefaultLimits())
	require.NoError(t, err)
	k, err := lane.Compile(p, lane.Options{})
	require.NoError(t, err)
	in := count(32, index)
	l := &lane.Launch{Grid: program.Dim3{X: 1, Y: 1, Z: 1}, Bindings: [][]byte{slices.Clone(in)}}
	require.Equal(t, lane.Result{}, k.NewWorker().Run(l, 0, 1, nil))
	require.NoError(t, difference(p, lane.Options{SubgroupSize: 32}, &lane.Launch{Grid: l.Grid, Bindings: [][]byte{in}}))
	return l.Bindings[0]
}

// TestPassedOver: parts of a module that change nothing are passed over.
func TestPassedOver(t *testing.T) {
	tripled := count(32, func(i uint32) uint32 { return 3 * i })
	nothing := func(spirv.ID) {}
	finish := func(b *spirvtest.Builder, main spirv.ID) {
		b.Return()
		b.End()
		b.Compute(main, "main", 32, 1, 1)
	}

	for name, c := range map[string]struct {
		build    func(b *spirvtest.Builder)
		manifest *program.Manifest
		want     []byte
	}{
		"reflection after the functions": {build: func(b *spirvtest.Builder) {
			b.Extension("SPV_KHR_non_semantic_info")
			set := b.Import("NonSemantic.Reflection.5")
			finish(b, triple(b, b.Buffer(0, b.Uint(32), 4), nothing))
			b.Do(spirv.OpExtInst, b.Void(), b.ID(), set, 1)
		}},
		"a newer source language": {build: func(b *spirvtest.Builder) {
			b.Source(1000)
			finish(b, triple(b, b.Buffer(0, b.Uint(32), 4), nothing))
		}},
		"a barrier of a subgroup, of no memory": {build: func(b *spirvtest.Builder) {
			scope := b.U32(uint32(spirv.ScopeSubgroup))
			finish(b, triple(b, b.Buffer(0, b.Uint(32), 4), func(spirv.ID) {
				b.Do(spirv.OpControlBarrier, scope, scope, b.U32(uint32(spirv.MemorySemanticsAcquireRelease)))
			}))
		}},
		"a decoration group": {build: func(b *spirvtest.Builder) {
			u := b.Uint(32)
			buffer := b.Global(spirv.StorageClassStorageBuffer, b.Block([]uint32{0}, b.RuntimeArray(u, 4)))
			group := b.Decorate(b.ID(), spirv.DecorationDescriptorSet, 0)
			b.Decorate(group, spirv.DecorationBinding, 0)
			b.Annotate(spirv.OpDecorationGroup, group)
			b.Annotate(spirv.OpGroupDecorate, group, buffer)
			finish(b, triple(b, buffer, nothing))
		}},
		"dead blocks": {build: func(b *spirvtest.Builder) {
			main := triple(b, b.Buffer(0, b.Uint(32), 4), nothing)
			b.Return()
			next := b.ID()
			b.Begin(b.ID())
			b.Branch(next)
			b.Begin(next)
			finish(b, main)
		}},
		"modes that change nothing": {build: func(b *spirvtest.Builder) {
			b.Extension("SPV_KHR_subgroup_uniform_control_flow")
			b.Extension("SPV_KHR_float_controls")
			b.Capability(spirv.CapabilityRoundingModeRTE)
			main := triple(b, b.Buffer(0, b.Uint(32), 4), nothing)
			finish(b, main)
			b.Mode(main, spirv.ExecutionModeSubgroupUniformControlFlowKHR)
			b.Mode(main, spirv.ExecutionModeRoundingModeRTE, 32)
		}},
		"the first of two entry points": {build: func(b *spirvtest.Builder) { both(b) }},
		"the second of two entry points": {
			build: func(b *spirvtest.Builder) { both(b) }, manifest: &program.Manifest{Entry: "other"},
			want: count(32, func(i uint32) uint32 { return 7 }),
		},
		"a copy of memory": {
			build: func(b *spirvtest.Builder) {
				buffer := b.Buffer(0, b.Uint(32), 4)
				finish(b, triple(b, buffer, func(p spirv.ID) {
					b.Do(spirv.OpCopyMemory, p, b.Access(spirv.StorageClassStorageBuffer, b.Uint(32), buffer, b.U32(0), b.U32(31)), spirv.MemoryAccessVolatile)
				}))
			},
			// The last lane comes last, after it has been read by all.
			want: count(32, func(i uint32) uint32 { return 93 }),
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := spirvtest.New()
			c.build(b)
			want := c.want
			if want == nil {
				want = tripled
			}
			require.Equal(t, want, runModule(t, b.Bytes(), c.manifest))
		})
	}

	b := spirvtest.New()
	both(b)
	bundle, err := program.Encode(b.Bytes(), &program.Manifest{Entry: "third"})
	require.NoError(t, err)
	_, err = verify.Admit(bundle, verify.DefaultLimits())
	require.ErrorContains(t, err, verify.CodeManifestEntry)
}

// both adds two entry points with sizes and inputs of their own.
func both(b *spirvtest.Builder) {
	u := b.Uint(32)
	buffer := b.Buffer(0, u, 4)
	main := triple(b, buffer, func(spirv.ID) {})
	b.Return()
	b.End()
	b.Compute(main, "main", 32, 1, 1)

	index := b.Input(u, spirv.BuiltInLocalInvocationIndex)
	other := b.Func(b.Void())
	b.Store(b.Access(spirv.StorageClassStorageBuffer, u, buffer, b.U32(0), b.Load(u, index)), b.U32(7))
	b.Return()
	b.End()
	b.Entry(spirv.ExecutionModelGLCompute, other, "other", index)
	b.Mode(other, spirv.ExecutionModeLocalSize, 32, 1, 1)
}

// TestMemoryOfOthers: shared memory that begins as zeros, atomics on what is
// writeonly, doubles of words, and a table of more than 4 KiB.
func TestMemoryOfOthers(t *testing.T) {
	table := func(i uint32) uint32 { return i * 2654435761 >> 7 }
	runKernels(t, []kernel{
		{
			name: "shared memory that begins as zeros", grid: 2,
			source: `#version 450
#extension GL_EXT_null_initializer : require
layout(local_size_x = 32) in;
layout(std430, binding = 0) buffer X { uint x[]; };
shared uint before[3];
shared uint seen[4] = {};
void main() { uint g = gl_GlobalInvocationID.x; atomicAdd(seen[x[g] & 3u], 1u); before[g % 3u] = 1u; barrier(); x[g] = seen[gl_LocalInvocationID.x & 3u] + before[0]; }`,
			bindings: [][]byte{count(64, index)}, want: [][]byte{count(64, func(uint32) uint32 { return 9 })},
		},
		{
			name: "atomics on what is writeonly",
			source: `layout(local_size_x = 32) in;
layout(std430, binding = 0) writeonly buffer Y { uint y[]; };
void main() { uint old, now; do { old = atomicCompSwap(y[0], 0u, 0u); now = old + 3u; } while (atomicCompSwap(y[0], old, now) != old); }`,
			bindings: [][]byte{lane.Words(4)}, want: [][]byte{lane.Words(100)},
		},
		{
			name: "doubles of words",
			source: `layout(local_size_x = 2) in;
layout(std430, binding = 0) buffer X { double x[]; };
void main() { uint g = gl_GlobalInvocationID.x; uvec2 w = unpackDouble2x32(x[g]); x[g] = packDouble2x32(uvec2(w.x + 1u, w.y ^ 0x80000000u)); }`,
			bindings: [][]byte{lane.Words(1, 0x3FF00000, 2, 0xC0000000)}, want: [][]byte{lane.Words(2, 0xBFF00000, 3, 0x40000000)},
		},
		{
			name: "a table of 8 KiB", source: tableOf(2048, table),
			bindings: [][]byte{count(32, func(i uint32) uint32 { return i * 97 })},
			want:     [][]byte{count(32, func(i uint32) uint32 { return table(i * 97 % 2048) })},
		},
	})
}

// TestClustersAndQuads: reductions of some lanes, and moves within four.
func TestClustersAndQuads(t *testing.T) {
	sum := func(i, n uint32) uint32 { return n*(i/n*n) + n*(n-1)/2 }
	runKernels(t, []kernel{{
		name: "clusters and quads",
		source: `#version 450
#extension GL_KHR_shader_subgroup_clustered : require
#extension GL_KHR_shader_subgroup_quad : require
layout(local_size_x = 64) in;
layout(std430, binding = 0) buffer X { uint x[]; };
void main() { uint g = gl_GlobalInvocationID.x, v = x[g];
x[g] = subgroupClusteredAdd(v, 4) * 1000000u + subgroupClusteredAdd(v, 2) * 10000u
	+ subgroupQuadSwapHorizontal(v) * 1000u % 7u + subgroupQuadSwapVertical(v) + subgroupQuadSwapDiagonal(v) + subgroupQuadBroadcast(v, 2u); }`,
		bindings: [][]byte{count(64, index)},
		want: [][]byte{count(64, func(i uint32) uint32 {
			return sum(i, 4)*1000000 + sum(i, 2)*10000 + (i^1)*1000%7 + (i ^ 2) + (i ^ 3) + (i&^3 | 2)
		})},
	}})
}
