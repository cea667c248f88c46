#version 450
#extension GL_GOOGLE_include_directive : require

// bins[key]++ for every key that is a bin; other keys are passed over. Few bins
// are counted in shared memory first.

#define LANES 256u
#define FEW 1024u
layout(local_size_x = 256) in;

layout(set = 0, binding = 0, std430) readonly buffer Keys { uint keys[]; };
layout(set = 0, binding = 1, std430) buffer Bins { uint bins[]; };

#include "grid.glsl"

shared uint counts[FEW];

void main() {
    uint first;
    uint stride;
    numberLanes(first, stride);
    uint lane = gl_LocalInvocationIndex;
    uint n = uint(keys.length());
    uint most = uint(bins.length());
    if (most > FEW) {
        for (uint i = first; i < n; i += stride) {
            uint key = keys[i];
            if (key < most) {
                atomicAdd(bins[key], 1u);
            }
        }
        return;
    }
    for (uint b = lane; b < most; b += LANES) {
        counts[b] = 0u;
    }
    barrier();
    for (uint i = first; i < n; i += stride) {
        uint key = keys[i];
        if (key < most) {
            atomicAdd(counts[key], 1u);
        }
    }
    barrier();
    for (uint b = lane; b < most; b += LANES) {
        uint count = counts[b];
        if (count != 0u) {
            atomicAdd(bins[b], count);
        }
    }
}
