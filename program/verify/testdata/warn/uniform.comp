#version 450
// Nothing to warn of.
layout(local_size_x = 64) in;
layout(std430, binding = 0) readonly buffer X { float x[]; };
layout(std430, binding = 1) buffer Y { float y[]; };
layout(push_constant) uniform P { uint n; } p;
shared float s[64];
float total(float v) {
	s[gl_LocalInvocationIndex] = v;
	barrier();
	for (uint o = 32u; o > 0u; o >>= 1) {
		if (gl_LocalInvocationIndex < o) s[gl_LocalInvocationIndex] += s[gl_LocalInvocationIndex + o];
		barrier();
	}
	float all = s[0];
	barrier();
	return all;
}
void main() {
	float acc = 0.0;
	for (uint base = gl_WorkGroupID.x * 64u; base < p.n; base += gl_NumWorkGroups.x * 64u) {
		if (x[base] > 1.0) barrier();
		uint i = base + gl_LocalInvocationIndex;
		float v = 0.0;
		for (uint k = 0u; k < gl_LocalInvocationIndex; k++) { if (v > 3.0) break; v += i < p.n ? x[i] : 0.0; }
		acc += total(v);
	}
	if (gl_LocalInvocationIndex == 0u) { y[gl_WorkGroupID.x] = acc; return; }
	y[gl_WorkGroupID.x + 1u] = acc;
}
