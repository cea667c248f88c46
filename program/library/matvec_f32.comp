#version 450
#extension GL_GOOGLE_include_directive : require

// y = m · x with m[rows][cols], row-major. A lane does a row.

layout(local_size_x = 128) in;

layout(set = 0, binding = 0, std430) readonly buffer M { float m[]; };
layout(set = 0, binding = 1, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Inline { uint rows; uint cols; };

#include "grid.glsl"

void main() {
    uint first;
    uint stride;
    numberLanes(first, stride);
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
    for (uint row = first; row < rows; row += stride) {
        uint start = row * cols;
        float sum = 0.0;
        for (uint i = 0u; i < cols; i++) {
            sum += m[start + i] * x[i];
        }
        y[row] = sum;
    }
}
