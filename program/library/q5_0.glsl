// GGUF's q5_0: 32 weights share a scale; 22 bytes. The low four bits are as in q4_0, bit
// i of high is the fifth of weight i; 16 is added.
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require

#define PER 32u

struct Block {
    float16_t scale;
    uint8_t high[4];
    uint8_t q[16];
};

layout(set = 0, binding = 0, std430) readonly buffer W { Block w[]; };

float weight(uint b, uint i) {
    uint q = uint(w[b].q[i % 16u]) >> (i / 16u * 4u) & 15u;
    uint fifth = uint(w[b].high[i / 8u]) >> (i % 8u) & 1u;
    return float(w[b].scale) * float(int(q | fifth << 4) - 16);
}
