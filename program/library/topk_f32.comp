#version 450
#extension GL_GOOGLE_include_directive : require

// The k largest elements with their indices, largest first, equal ones by index. NaN
// is not among them. Where x has fewer, -infinity and 0xFFFFFFFF follow. k is at most
// 64. The first workgroup does it, in k rounds.

#define LANES 256u
#define MOST_K 64u
layout(local_size_x = 256) in;

layout(set = 0, binding = 0, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Values { float values[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Indices { uint indices[]; };
layout(push_constant) uniform Inline { uint k; };

#include "grid.glsl"
#include "best.glsl"
#include "topk.glsl"

void main() {
    uint group;
    uint groups;
    numberGroups(group, groups);
    if (group != 0u) {
        return;
    }
    if (k > MOST_K || k > uint(values.length())) {
        values[outside()] = 0.0;
        return;
    }
    if (k > uint(indices.length())) {
        indices[outside()] = 0u;
        return;
    }
    uint n = uint(x.length());
    float last = highest();
    uint next = 0u;
    for (uint i = 0u; i < k; i++) {
        float value;
        uint at;
        nextBest(n, last, next, value, at);
        if (gl_LocalInvocationIndex == 0u) {
            values[i] = value;
            indices[i] = at;
        }
    }
}
