#version 450
#extension GL_GOOGLE_include_directive : require

// Each row of n elements: y = exp(x - max(x)) / sum of them. There are as many rows
// as x has whole ones. A workgroup does a row.

#define LANES 256u
layout(local_size_x = 256) in;

layout(set = 0, binding = 0, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Inline { uint n; };

#include "grid.glsl"
#include "tree.glsl"

void main() {
    uint group;
    uint groups;
    numberGroups(group, groups);
    uint rows = n == 0u ? 0u : uint(x.length()) / max(n, 1u);
    if (rows * n > uint(y.length())) {
        y[outside()] = 0.0;
        return;
    }
    for (uint row = group; row < rows; row += groups) {
        uint start = row * n;
        float most = -3.402823466e38;
        for (uint i = gl_LocalInvocationIndex; i < n; i += LANES) {
            most = max(most, x[start + i]);
        }
        most = maxOfGroup(most);
        float sum = 0.0;
        for (uint i = gl_LocalInvocationIndex; i < n; i += LANES) {
            sum += exp(x[start + i] - most);
        }
        sum = sumOfGroup(sum);
        for (uint i = gl_LocalInvocationIndex; i < n; i += LANES) {
            y[start + i] = exp(x[start + i] - most) / sum;
        }
    }
}
