#version 450
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_vote : require
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_shuffle_relative : require
#extension GL_KHR_shader_subgroup_arithmetic : require
layout(local_size_x = 64) in;
layout(std430, binding = 0) readonly buffer X { float x[]; };
layout(std430, binding = 1) buffer Y { uvec4 y[]; };
layout(std430, binding = 2) buffer Z { vec2 z[]; };
void main() {
	uint i = gl_GlobalInvocationID.x;
	float v = x[i];
	float sum = subgroupAdd(v) + subgroupMax(v) * subgroupInclusiveMul(v) - subgroupExclusiveMin(v);
	uint u = subgroupOr(i) ^ subgroupXor(i) & subgroupAnd(i) + subgroupMax(i) - subgroupMin(int(i));
	if (subgroupAll(v > 0.0) || subgroupAny(v < -1.0) || subgroupAllEqual(v)) {
		sum += subgroupShuffle(v, i & 7u) + subgroupShuffleXor(v, 1u) + subgroupShuffleUp(v, 1u) + subgroupShuffleDown(v, 2u);
	}
	vec2 w = subgroupBroadcast(vec2(v, sum), 3u) + subgroupBroadcastFirst(vec2(sum));
	uvec4 b = subgroupBallot(v > 0.5);
	u += subgroupBallotBitCount(b) + subgroupBallotInclusiveBitCount(b) + subgroupBallotFindLSB(b) + subgroupBallotFindMSB(b);
	if (subgroupInverseBallot(b) && subgroupBallotBitExtract(b, gl_SubgroupInvocationID) && subgroupElect())
		u += gl_SubgroupSize + gl_SubgroupID + gl_NumSubgroups + gl_SubgroupLtMask.x + gl_SubgroupGeMask.y;
	y[i] = b + uvec4(u);
	z[i] = w;
	subgroupBarrier();
	subgroupMemoryBarrierBuffer();
}
