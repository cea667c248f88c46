#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_16bit_storage : require

// Row tokens[t] of the table, in f16, becomes row t of y; rows have dim elements. A
// token that the table does not have is an access outside the table.

layout(local_size_x = 256, local_size_y = 1, local_size_z = 1) in;
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(set = 0, binding = 0, std430) readonly buffer Table { float16_t table[]; };
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
    if (!fits(uint(tokens.length()), dim, uint(y.length()))) {
        y[outside()] = 0.0;
        return;
    }
    uint rows = uint(table.length()) / dim;
    uint n = uint(tokens.length()) * dim;
    for (uint i = first; i < n; i += stride) {
        uint token = tokens[i / dim];
        uint at = token < rows ? token * dim + i % dim : outside();
        y[i] = float(table[at]);
    }
}
