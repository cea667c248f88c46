#version 450
layout(local_size_x = 64) in;
layout(std430, binding = 0) buffer Y { uint y[]; };
void main() {
	for (uint i = gl_LocalInvocationIndex; i < 100u; i += 64u) {
		y[i] = i;
		barrier(); // W-GPU-4040
	}
	barrier();
	for (uint i = 0u; i < 100u; i++) {
		if (y[gl_LocalInvocationIndex] == i) continue;
		barrier(); // W-GPU-4040
	}
	for (uint i = 0u; i < 100u; i++) {
		if (y[gl_LocalInvocationIndex] == i) break;
		barrier(); // W-GPU-4040
	}
	barrier();
}
