#version 450
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
layout(local_size_x = 64) in;
struct Block { float16_t scale; int8_t q[32]; };
layout(std430, binding = 0) readonly buffer W { Block w[]; };
layout(std430, binding = 1) buffer Y { float16_t h[]; };
layout(std430, binding = 2) buffer S { uint16_t u[]; };

void main() {
    uint i = gl_GlobalInvocationID.x;
    float sum = 0.0;
    for (int k = 0; k < 32; k++) sum += float(w[i].scale) * float(int(w[i].q[k]));
    h[i] = float16_t(sum);
    u[i] = uint16_t(uint(sum) & 0xffffu);
}
