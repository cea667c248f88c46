#version 450
#extension GL_GOOGLE_include_directive : require

// Each row of n elements: y = x / sqrt(mean(x²) + eps) · w. There are as many rows as
// x has whole ones. A workgroup does a row.

#define LANES 256u
layout(local_size_x = 256) in;

layout(set = 0, binding = 0, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 1, std430) readonly buffer W { float w[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Inline { uint n; float eps; };

#include "grid.glsl"
#include "tree.glsl"

void main() {
    uint group;
    uint groups;
    numberGroups(group, groups);
    uint rows = n == 0u ? 0u : uint(x.length()) / max(n, 1u);
    if (rows > 0u && n > uint(w.length())) {
        y[outside()] = w[outside()];
        return;
    }
    if (rows * n > uint(y.length())) {
        y[outside()] = 0.0;
        return;
    }
    for (uint row = group; row < rows; row += groups) {
        uint start = row * n;
        float squares = 0.0;
        for (uint i = gl_LocalInvocationIndex; i < n; i += LANES) {
            float v = x[start + i];
            squares += v * v;
        }
        float scale = 1.0 / sqrt(sumOfGroup(squares) / float(n) + eps);
        for (uint i = gl_LocalInvocationIndex; i < n; i += LANES) {
            y[start + i] = x[start + i] * scale * w[i];
        }
    }
}
