#version 450
#extension GL_GOOGLE_include_directive : require

// Row tokens[t] of the table, in q4_0, becomes row t of y; rows have dim elements,
// a multiple of 32. A token that the table does not have is an access outside the
// table.

layout(local_size_x = 256, local_size_y = 1, local_size_z = 1) in;
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

#include "q4_0.glsl"

layout(set = 0, binding = 0, std430) readonly buffer Table { Block table[]; };
layout(set = 0, binding = 1, std430) readonly buffer Tokens { uint tokens[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Inline { uint dim; };

#include "grid.glsl"

void main() {
    uint first;
    uint stride;
    numberLanes(first, stride);
    if (dim == 0u) {
        return;
    }
    if (dim % 32u != 0u || !fits(uint(tokens.length()), dim, uint(y.length()))) {
        y[outside()] = 0.0;
        return;
    }
    uint blocks = dim / 32u;
    uint rows = uint(table.length()) / blocks;
    uint n = uint(tokens.length()) * dim;
    for (uint i = first; i < n; i += stride) {
        uint token = tokens[i / dim];
        uint at = token < rows ? token * blocks + i % dim / 32u : outside();
        uint j = i % 32u;
        uint q = uint(table[at].q[j % 16u]);
        y[i] = float(table[at].scale) * (j < 16u ? low(q) : high(q));
    }
}
