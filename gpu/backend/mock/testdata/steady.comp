#version 450

// dst[i + shift] = 3 * src[i] + 1: no loop, and a trap where dst ends before it.
//
// glslangValidator -V --target-env vulkan1.1 -o steady.spv steady.comp

layout(local_size_x = 64) in;

layout(set = 0, binding = 0, std430) readonly buffer Src { uint src[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Dst { uint dst[]; };
layout(push_constant) uniform Arguments { uint shift; };

void main() {
    uint i = gl_GlobalInvocationID.x;
    dst[i + shift] = 3 * src[i] + 1;
}
