#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_8bit_storage : require

// Row tokens[t] of the table, in signed bytes with a scale for each run of so many as a
// group has, becomes row t of y; rows have dim elements. A token that the table does not
// have is an access outside the table, or outside the scales.

layout(local_size_x = 256, local_size_y = 1, local_size_z = 1) in;
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(set = 0, binding = 0, std430) readonly buffer Table { int8_t table[]; };
layout(set = 0, binding = 1, std430) readonly buffer Scales { float scales[]; };
layout(set = 0, binding = 2, std430) readonly buffer Tokens { uint tokens[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Inline { uint dim; uint group; };

#include "grid.glsl"

void main() {
    uint first;
    uint stride;
    numberLanes(first, stride);
    uint n = uint(tokens.length());
    if (n == 0u || dim == 0u) {
        return;
    }
    if (group == 0u) {
        y[outside()] = scales[outside()];
        return;
    }
    if (!fits(n, dim, uint(y.length()))) {
        y[outside()] = 0.0;
        return;
    }
    uint rows = uint(table.length()) / dim;
    for (uint i = first; i < n * dim; i += stride) {
        uint token = tokens[i / dim];
        uint at = token < rows ? token * dim + i % dim : outside();
        y[i] = float(int(table[at])) * scales[at / group];
    }
}
