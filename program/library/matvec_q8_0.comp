#version 450
#extension GL_GOOGLE_include_directive : require

// y = w · x with w[rows][cols] in q8_0, row-major; cols is a multiple of 32. A lane
// does a row.

layout(local_size_x = 128) in;

#include "q8_0.glsl"

layout(set = 0, binding = 0, std430) readonly buffer W { Block w[]; };
layout(set = 0, binding = 1, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Inline { uint rows; uint cols; };

#include "grid.glsl"

void main() {
    uint first;
    uint stride;
    numberLanes(first, stride);
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
    for (uint row = first; row < rows; row += stride) {
        float sum = 0.0;
        for (uint j = 0u; j < blocks; j++) {
            uint at = row * blocks + j;
            float dot = 0.0;
            for (uint i = 0u; i < 32u; i++) {
                dot += float(int(w[at].q[i])) * x[j * 32u + i];
            }
            sum += float(w[at].scale) * dot;
        }
        y[row] = sum;
    }
}
