#version 450
#extension GL_GOOGLE_include_directive : require

// result[g] is the sum of the workgroup g's share of x: with G workgroups, the
// elements i with i / LANES % G = g. One workgroup makes the sum of all.

#define LANES 256u
layout(local_size_x = 256) in;

layout(set = 0, binding = 0, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Out { float result[]; };

#include "grid.glsl"
#include "tree.glsl"

void main() {
    uint group;
    uint groups;
    numberGroups(group, groups);
    uint first;
    uint stride;
    numberLanes(first, stride);
    uint n = uint(x.length());
    float mine = 0.0;
    for (uint i = first; i < n; i += stride) {
        mine += x[i];
    }
    float all = sumOfGroup(mine);
    if (gl_LocalInvocationIndex == 0u) {
        result[group] = all;
    }
}
