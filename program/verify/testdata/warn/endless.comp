#version 450
layout(local_size_x = 64) in;
layout(std430, binding = 0) buffer Y { uint y[]; };
void main() {
	if (gl_LocalInvocationIndex == 5u) {
		while (true) // W-GPU-4070
			y[0]++;
	}
	for (;;) { y[1]++; if (y[2] == 1u) return; }
}
