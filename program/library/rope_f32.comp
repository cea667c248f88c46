#version 450
#extension GL_GOOGLE_include_directive : require

// Rotates the pairs (2i, 2i+1) of every head by pos · base^(-2i/head_dim), in place.
// head_dim is even.

layout(local_size_x = 256, local_size_y = 1, local_size_z = 1) in;
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(set = 0, binding = 0, std430) buffer X { float x[]; };
layout(push_constant) uniform Inline { uint heads; uint head_dim; uint pos; float base; };

#include "grid.glsl"

void main() {
    uint first;
    uint stride;
    numberLanes(first, stride);
    if (head_dim % 2u != 0u || !fits(heads, head_dim, uint(x.length()))) {
        x[outside()] = 0.0;
        return;
    }
    uint pairs = heads * (head_dim / 2u);
    for (uint p = first; p < pairs; p += stride) {
        uint i = p % (head_dim / 2u);
        float angle = float(pos) * pow(base, -2.0 * float(i) / float(head_dim));
        float s = sin(angle);
        float c = cos(angle);
        float re = x[2u * p];
        float im = x[2u * p + 1u];
        x[2u * p] = re * c - im * s;
        x[2u * p + 1u] = re * s + im * c;
    }
}
