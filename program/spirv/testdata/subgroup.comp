#version 450
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_vote : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x = 32) in;
layout(std430, binding = 0) buffer Data { uint n; int64_t wide; double d; uint v[]; };

void main() {
    uint x = v[gl_GlobalInvocationID.x];
    uint all = subgroupAdd(x);
    uvec4 b = subgroupBallot((x & 1u) == 1u);
    uint c = subgroupBallotBitCount(b) + subgroupExclusiveAdd(x);
    uint s = subgroupShuffleXor(x, 1u) ^ subgroupBroadcastFirst(all);
    if (subgroupElect()) {
        atomicAdd(n, c);
        wide += int64_t(s) * -5000000000L;
        d = sqrt(d) + 0.1LF;
    }
    if (subgroupAny(x > 9u)) v[gl_GlobalInvocationID.x] = s + gl_SubgroupInvocationID;
}
