#version 450
#extension GL_GOOGLE_include_directive : require

// x = cap · tanh(x / cap), in place; with a cap that is not above 0, x stays.

layout(local_size_x = 256, local_size_y = 1, local_size_z = 1) in;
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(set = 0, binding = 0, std430) buffer X { float x[]; };
layout(push_constant) uniform Inline { float cap; };

#include "grid.glsl"
#include "cap.glsl"

void main() {
    uint first;
    uint stride;
    numberLanes(first, stride);
    for (uint i = first; i < uint(x.length()); i += stride) {
        x[i] = capped(x[i], cap);
    }
}
