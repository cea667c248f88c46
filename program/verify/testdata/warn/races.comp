#version 450
layout(local_size_x = 64) in;
layout(std430, binding = 0) buffer Y { uint y[]; };
shared uint s[64];
shared uint t;
uint neighbour(uint i) {
	return s[i ^ 1u];
}
void main() {
	uint i = gl_LocalInvocationIndex;
	s[i] = y[i];
	uint own = s[i];
	uint other = s[i ^ 1u]; // W-GPU-4033
	barrier();
	other += s[i ^ 1u];
	if (i == 0u) t = own;
	y[i] = other + s[i];
	memoryBarrierShared();
	y[i] += t; // W-GPU-4033
	barrier();
	s[i] = 2u;
	y[i] += neighbour(i); // W-GPU-4033
}
