#version 450
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_shuffle_relative : require
layout(local_size_x = 64) in;
layout(std430, binding = 0) buffer Y { float y[]; };
void main() {
	float v = y[gl_LocalInvocationIndex];
	v += subgroupShuffle(v, 3u) + subgroupShuffleXor(v, 1u);
	for (uint d = 16u; d > 0u; d >>= 1) v += subgroupShuffleDown(v, d);
	v += subgroupShuffle(v, gl_LocalInvocationIndex / 2u); // W-GPU-4051
	v += subgroupShuffleUp(v, gl_LocalInvocationIndex & 3u); // W-GPU-4051
	y[gl_LocalInvocationIndex] = v;
}
