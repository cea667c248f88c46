#version 450
#extension GL_GOOGLE_include_directive : require

// c = a + b, for as many elements as all three have.

layout(local_size_x = 256, local_size_y = 1, local_size_z = 1) in;
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(set = 0, binding = 0, std430) readonly buffer A { float a[]; };
layout(set = 0, binding = 1, std430) readonly buffer B { float b[]; };
layout(set = 0, binding = 2, std430) writeonly buffer C { float c[]; };

#include "grid.glsl"

void main() {
    uint first;
    uint stride;
    numberLanes(first, stride);
    uint n = min(min(uint(a.length()), uint(b.length())), uint(c.length()));
    for (uint i = first; i < n; i += stride) {
        c[i] = a[i] + b[i];
    }
}
