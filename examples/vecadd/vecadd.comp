#version 450
// c = a + b, one element for each lane.
layout(local_size_x = 256) in;
layout(set = 0, binding = 0, std430) readonly buffer A { float a[]; };
layout(set = 0, binding = 1, std430) readonly buffer B { float b[]; };
layout(set = 0, binding = 2, std430) writeonly buffer C { float c[]; };

void main() {
	uint i = gl_GlobalInvocationID.x;
	if (i < c.length())
		c[i] = a[i] + b[i];
}
