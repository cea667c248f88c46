#version 450
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_shader_atomic_int64 : require
#extension GL_EXT_shader_atomic_float : require
layout(local_size_x_id = 0, local_size_y = 2) in;
layout(constant_id = 7) const int SCALE = 3;
layout(constant_id = 8) const bool FLIP = false;
const int TWICE = SCALE * 2 - (FLIP ? 1 : 0);
struct Block { float16_t d; int8_t q[32]; };
struct Pair { vec3 p; float w; ivec2 k[2]; };
layout(std430, binding = 0) readonly buffer Q { Block q[]; };
layout(std430, binding = 1) buffer H { f16vec2 h[]; };
layout(std430, binding = 2) buffer L { uint64_t l[]; };
layout(std430, binding = 3) buffer D { double d[]; };
layout(std430, binding = 4) buffer F { float f[]; };
layout(std430, binding = 5) buffer P { Pair p[4]; Pair rest[]; };
layout(std430, binding = 6) buffer S { u16vec4 s[]; };
layout(push_constant) uniform Push { vec4 v; uint n; float arr[2]; double dd; } push;
shared Pair tile[8];
void main() {
	uint i = gl_GlobalInvocationID.x + gl_WorkGroupSize.x * gl_WorkGroupID.y;
	Block b = q[i];
	float x = float(b.d) * float(int(b.q[i & 31u])) + float(TWICE);
	h[i] = f16vec2(vec2(x, push.v.y));
	uint64_t big = l[i] * 3ul + uint64_t(push.n);
	atomicAdd(l[i], big >> 3);
	double e = d[i] * push.dd + sqrt(d[i]);
	d[i] = fma(e, e, double(x));
	atomicAdd(f[i], x);
	Pair t = rest[i];
	t.p = cross(t.p, p[i & 3u].p) * push.arr[i & 1u];
	t.k[1].x += int(unpackHalf2x16(packHalf2x16(vec2(x))).x);
	tile[i & 7u] = t;
	barrier();
	rest[i] = tile[(i + 1u) & 7u];
	s[i] = u16vec4(uvec4(i, uint(big), floatBitsToUint(x), bitCount(i)));
}
