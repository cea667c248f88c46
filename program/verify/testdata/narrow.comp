#version 450
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_EXT_shader_subgroup_extended_types_int8 : require
#extension GL_EXT_shader_subgroup_extended_types_float16 : require
layout(local_size_x = 32) in;
layout(push_constant) uniform P { int8_t a; uint16_t b; float16_t c; } p;
layout(std430, binding = 0) buffer Q { u8vec4 q[]; };
layout(std430, binding = 1) buffer H { f16vec2 h[]; };
layout(std430, binding = 2) buffer S { int16_t s[]; };
float16_t f(f16vec2 v, out int16_t n) { n = int16_t(v.x) % int16_t(7); return dot(v, v) + sqrt(abs(v.y)); }
void main() {
	uint g = gl_GlobalInvocationID.x;
	u8vec4 b = q[g] >> uint8_t(3);
	int16_t n;
	float16_t x = f(h[g] * p.c, n);
	if (x > float16_t(4.0) || isnan(x)) { x = clamp(x, float16_t(-1.0), float16_t(1.0)); }
	s[g] = max(n, int16_t(b.x)) + int16_t(p.a) - int16_t(p.b) * s[g];
	h[g] = f16vec2(subgroupAdd(x), float16_t(s[g]));
	q[g] = u8vec4(subgroupMax(int8_t(b.y)), b.z & b.w, uint8_t(x), ~b.x);
}
