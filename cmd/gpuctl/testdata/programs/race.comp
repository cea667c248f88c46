#version 450
layout(local_size_x = 64) in;
layout(set = 0, binding = 0, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Y { float y[]; };
shared float tile[64];
void main() {
	uint i = gl_LocalInvocationIndex;
	tile[i] = x[gl_GlobalInvocationID.x];
	// a barrier is missing here
	y[gl_GlobalInvocationID.x] = tile[63 - i];
}
