#version 450
#extension GL_GOOGLE_include_directive : require

// y = a*x + y, for as many elements as both have. The product is rounded before
// the sum.

layout(local_size_x = 256, local_size_y = 1, local_size_z = 1) in;
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(set = 0, binding = 0, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 1, std430) buffer Y { float y[]; };
layout(push_constant) uniform Inline { float a; };

#include "grid.glsl"

void main() {
    uint first;
    uint stride;
    numberLanes(first, stride);
    uint n = min(uint(x.length()), uint(y.length()));
    for (uint i = first; i < n; i += stride) {
        precise float sum = a * x[i] + y[i];
        y[i] = sum;
    }
}
