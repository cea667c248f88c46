#version 450
#extension GL_GOOGLE_include_directive : require

// Each row of x has n elements a and then n elements b; y = gelu(a) · b, where gelu(a) is
// the approximation a · sigmoid(2·sqrt(2/π) · (a + 0.044715·a³)), which is a/2 · (1 +
// tanh(…)). There are as many rows as both have whole ones.

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
        // Beyond 20 the sigmoid is 0 or 1, and a³ stays finite.
        float c = clamp(a, -20.0, 20.0);
        float t = 1.5957691216 * (c + 0.044715 * c * c * c);
        float e = exp(-abs(t)); // at most 1
        y[i] = a * ((t < 0.0 ? e : 1.0) / (1.0 + e)) * x[at + n];
    }
}
