#version 450
#extension GL_GOOGLE_include_directive : require

// result[0] is the index of the largest element, the first of equal ones. NaN is
// never the largest; with nothing else there it is 0xFFFFFFFF. The first workgroup
// does it.

#define LANES 256u
layout(local_size_x = 256) in;

layout(set = 0, binding = 0, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Out { uint result[]; };

#include "grid.glsl"
#include "best.glsl"

void main() {
    uint group;
    uint groups;
    numberGroups(group, groups);
    if (group != 0u) {
        return;
    }
    uint n = uint(x.length());
    float best = lowest();
    uint at = NONE;
    for (uint i = gl_LocalInvocationIndex; i < n; i += LANES) {
        offer(x[i], i, best, at);
    }
    bestOfGroup(best, at);
    if (gl_LocalInvocationIndex == 0u) {
        result[0] = at;
    }
}
