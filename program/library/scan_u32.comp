#version 450
#extension GL_GOOGLE_include_directive : require

// y[i] = x[0] + … + x[i], for as many elements as both have. The first workgroup
// does it all: LANES elements at a time, each time doubling how far a lane looks
// back, and carries the sum on.

#define LANES 256u
layout(local_size_x = 256) in;

layout(set = 0, binding = 0, std430) readonly buffer X { uint x[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Y { uint y[]; };

#include "grid.glsl"

shared uint sums[LANES];

void main() {
    uint group;
    uint groups;
    numberGroups(group, groups);
    if (group != 0u) {
        return;
    }
    uint lane = gl_LocalInvocationIndex;
    uint n = min(uint(x.length()), uint(y.length()));
    uint carry = 0u;
    for (uint base = 0u; base < n; base += LANES) {
        uint i = base + lane;
        uint mine = 0u;
        if (i < n) {
            mine = x[i];
        }
        for (uint back = 1u; back < LANES; back <<= 1) {
            sums[lane] = mine;
            barrier();
            if (lane >= back) {
                mine += sums[lane - back];
            }
            barrier();
        }
        sums[lane] = mine;
        barrier();
        if (i < n) {
            y[i] = carry + mine;
        }
        carry += sums[LANES - 1u];
        barrier();
    }
}
