package lane_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/lane"
	"capgpu/program/verify"
)

const narrowTypes = `#version 450
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
`

// half is the bits of a number that is exact as a half.
func half(t *testing.T, x float64) uint16 {
	if x == 0 {
		return uint16(math.Float64bits(x) >> 48)
	}
	m, e := math.Frexp(math.Abs(x))
	n := math.Ldexp(m, 11)
	require.True(t, n == math.Trunc(n) && e > -14 && e <= 16, "%v is no half", x)
	bits := uint16(e+13)<<10 + uint16(n)
	if x < 0 {
		bits |= 1 << 15
	}
	return bits
}

func halves(t *testing.T, v ...float64) []byte {
	b := make([]byte, 2*len(v))
	for i, x := range v {
		binary.LittleEndian.PutUint16(b[2*i:], half(t, x))
	}
	return b
}

// TestNarrow: arithmetic on 8 and 16 bits.
func TestNarrow(t *testing.T) {
	runKernels(t, []kernel{
		{
			name: "halves",
			source: narrowTypes + `layout(local_size_x = 4) in;
layout(std430, binding = 0) buffer X { float16_t x[]; };
void main() { uint g = gl_GlobalInvocationID.x; float16_t v = x[g]; x[g] = max(v * v - float16_t(0.5), float16_t(0.0)); }`,
			bindings: [][]byte{halves(t, 0.5, 1.5, -3, 45.25)},
			want:     [][]byte{halves(t, 0, 1.75, 8.5, 2048)}, // 2047.5625 and then 2047.5 are rounded
		},
		{
			name: "a sum of halves in f32",
			source: narrowTypes + `layout(local_size_x = 1) in;
layout(std430, binding = 0) buffer X { f16vec4 x[]; };
void main() { x[0].x = dot(x[0], x[1]); x[1].x = length(x[2]); }`,
			// Rounded at each step, 2048 + 1 would stay 2048, and 300² is no half.
			bindings: [][]byte{halves(t, 2048, 1, 1, 0, 1, 1, 1, 0, 300, 400, 0, 0)},
			want:     [][]byte{halves(t, 2050, 1, 1, 0, 500, 1, 1, 0, 300, 400, 0, 0)},
		},
		{
			name: "int8 and int16",
			source: narrowTypes + `layout(local_size_x = 32) in;
layout(std430, binding = 0) readonly buffer Q { uint8_t q[]; };
layout(std430, binding = 1) writeonly buffer Y { int16_t y[]; };
layout(std430, binding = 2) writeonly buffer Z { int8_t z[]; };
void main() { uint g = gl_GlobalInvocationID.x; uint8_t b = q[g];
y[g] = int16_t(b >> 4us) * int16_t(3) - int16_t(b & uint8_t(15));
z[g] = max(int8_t(b) / int8_t(3), -int8_t(40)) * int8_t(5); }`,
			bindings: [][]byte{bytesOf(32, func(i uint32) uint32 { return i * 37 }), make([]byte, 64), make([]byte, 32)},
			want: [][]byte{
				nil,
				halfwords(32, func(i uint32) uint32 { b := i * 37 & 255; return b>>4*3 - b&15 }),
				bytesOf(32, func(i uint32) uint32 { return uint32(max(int32(int8(i*37))/3, -40) * 5) }),
			},
		},
		{
			name: "push constants of 8 and 16 bits",
			source: narrowTypes + `layout(local_size_x = 2) in;
layout(push_constant) uniform P { int8_t a; uint8_t b; int16_t c; float16_t d; } p;
layout(std430, binding = 0) buffer X { float x[]; };
void main() { x[gl_LocalInvocationIndex] = float(p.a) + float(p.b) + float(p.c) + float(p.d) + float(gl_LocalInvocationIndex); }`,
			bindings: [][]byte{make([]byte, 8)}, inline: append([]byte{0xFF, 0xFF, 0xFE, 0xFF}, append(halves(t, 0.5), 0, 0)...),
			want: [][]byte{lane.Floats(-1+255-2+0.5, -1+255-2+0.5+1)},
		},
		{
			name: "subgroups",
			source: narrowTypes + `#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_EXT_shader_subgroup_extended_types_int8 : require
#extension GL_EXT_shader_subgroup_extended_types_float16 : require
layout(local_size_x = 8) in;
layout(std430, binding = 0) buffer X { int8_t x[]; };
layout(std430, binding = 1) buffer Y { float16_t y[]; };
void main() { uint g = gl_LocalInvocationIndex; x[g] = subgroupExclusiveMin(x[g]); y[g] = subgroupInclusiveAdd(y[g]); }`,
			bindings: [][]byte{{5, 6, 0xFD, 4, 0x80, 1, 2, 3}, halves(t, 2048, 1, 1, 1, 1, 0, 0, 0)},
			// The partial sums are not rounded: 2049 is halfway, and goes to even; 2051 too.
			want: [][]byte{{127, 5, 5, 0xFD, 0xFD, 0x80, 0x80, 0x80}, halves(t, 2048, 2048, 2050, 2052, 2052, 2052, 2052, 2052)},
		},
	})
}

// TestNarrowFeatures: arithmetic on 8 and 16 bits is a feature of its own, beside
// their storage.
func TestNarrowFeatures(t *testing.T) {
	for source, want := range map[string][]program.Feature{
		"x[g] = float16_t(float(x[g]) * 2.0);":     {program.FeatureF16Storage},
		"x[g] = x[g] * float16_t(2.0);":            {program.FeatureF16, program.FeatureF16Storage},
		"x[g] = float16_t(int8_t(g) * int8_t(3));": {program.FeatureF16, program.FeatureF16Storage, program.FeatureI8},
	} {
		p, err := verify.Admit(lane.GLSL(t, narrowTypes+`layout(local_size_x = 32) in;
layout(std430, binding = 0) buffer X { float16_t x[]; };
void main() { uint g = gl_LocalInvocationIndex; `+source+` }`), verify.DefaultLimits())
		require.NoError(t, err)
		require.Equal(t, want, p.Info.Features, source)
	}
}
