#version 450
// y = factor · x + bias, elements of 64 bits.
#extension GL_ARB_gpu_shader_fp64 : enable
layout(local_size_x = 32) in;
layout(set = 0, binding = 0, std430) readonly buffer X { double x[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Y { double y[]; };
layout(push_constant) uniform Inline { float factor; int bias; };

void main() {
	uint i = gl_GlobalInvocationID.x;
	if (i < y.length())
		y[i] = x[i] * factor + bias;
}
