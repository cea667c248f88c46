#version 450
#extension GL_GOOGLE_include_directive : require

// dst = pattern, everywhere.

layout(local_size_x = 256, local_size_y = 1, local_size_z = 1) in;
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(set = 0, binding = 0, std430) writeonly buffer Dst { uint dst[]; };
layout(push_constant) uniform Inline { uint pattern; };

#include "grid.glsl"

void main() {
    uint first;
    uint stride;
    numberLanes(first, stride);
    uint n = uint(dst.length());
    for (uint i = first; i < n; i += stride) {
        dst[i] = pattern;
    }
}
