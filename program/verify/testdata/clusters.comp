#version 450
#extension GL_KHR_shader_subgroup_clustered : require
#extension GL_KHR_shader_subgroup_quad : require
layout(local_size_x = 32) in;
layout(std430, binding = 0) buffer X { uint x[]; };
layout(std430, binding = 1) buffer F { vec2 f[]; };
void main() {
	uint g = gl_GlobalInvocationID.x, v = x[g];
	f[g] = subgroupClusteredMax(f[g], 8) + subgroupQuadBroadcast(f[g], 1u);
	x[g] = subgroupClusteredAdd(v, 4) ^ subgroupQuadSwapHorizontal(v) ^ subgroupQuadSwapDiagonal(v);
}
