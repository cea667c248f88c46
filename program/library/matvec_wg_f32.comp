#version 450
#extension GL_GOOGLE_include_directive : require

// y = m · x with m[rows][cols], row-major. A workgroup does a row.

#define LANES 64u
layout(local_size_x = 64) in;

layout(set = 0, binding = 0, std430) readonly buffer M { float m[]; };
layout(set = 0, binding = 1, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Inline { uint rows; uint cols; };

#include "grid.glsl"
#include "tree.glsl"

void main() {
    uint group;
    uint groups;
    numberGroups(group, groups);
    if (!fits(rows, cols, uint(m.length()))) {
        y[outside()] = m[outside()];
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
        uint start = row * cols;
        float mine = 0.0;
        for (uint i = gl_LocalInvocationIndex; i < cols; i += LANES) {
            mine += m[start + i] * x[i];
        }
        float sum = sumOfGroup(mine);
        if (gl_LocalInvocationIndex == 0u) {
            y[row] = sum;
        }
    }
}
