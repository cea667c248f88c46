#version 450
#extension GL_GOOGLE_include_directive : require

// y = w · x with w[rows][cols] in q8_0, row-major; cols is a multiple of 32. A
// workgroup does a row.

#define LANES 64u
layout(local_size_x = 64) in;

#include "q8_0.glsl"

layout(set = 0, binding = 0, std430) readonly buffer W { Block w[]; };
layout(set = 0, binding = 1, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Inline { uint rows; uint cols; };

#include "grid.glsl"
#include "tree.glsl"

void main() {
    uint group;
    uint groups;
    numberGroups(group, groups);
    uint blocks = cols / 32u;
    if (cols % 32u != 0u || !fits(rows, blocks, uint(w.length()))) {
        y[outside()] = float(w[outside()].scale);
        return;
    }
    if (cols > uint(x.length())) {
        y[outside()] = x[outside()];
        return;
    }
    if (rows > uint(y.length())) {
        y[outside()] = 0.0;
        return;
    }
    for (uint row = group; row < rows; row += groups) {
        float mine = 0.0;
        for (uint i = gl_LocalInvocationIndex; i < cols; i += LANES) {
            uint at = row * blocks + i / 32u;
            mine += float(w[at].scale) * float(int(w[at].q[i % 32u])) * x[i];
        }
        float sum = sumOfGroup(mine);
        if (gl_LocalInvocationIndex == 0u) {
            y[row] = sum;
        }
    }
}
