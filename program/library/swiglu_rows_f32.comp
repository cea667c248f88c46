#version 450
#extension GL_GOOGLE_include_directive : require

// Each row of x has n elements a and then n elements b; y = a · sigmoid(a) · b. There
// are as many rows as both have whole ones.

layout(local_size_x = 256, local_size_y = 1, local_size_z = 1) in;
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(set = 0, binding = 0, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Inline { uint n; };

#include "grid.glsl"

void main() {
    uint first;
    uint stride;
    numberLanes(first, stride);
    if (n == 0u) {
        return;
    }
    uint rows = min(uint(x.length()) / 2u / n, uint(y.length()) / n);
    for (uint i = first; i < rows * n; i += stride) {
        uint at = i / n * n + i; // of a; b is n further
        float a = x[at];
        float e = exp(-abs(a)); // at most 1
        y[i] = a * ((a < 0.0 ? e : 1.0) / (1.0 + e)) * x[at + n];
    }
}
