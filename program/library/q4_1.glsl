// GGUF's q4_1: 32 weights share a scale and an offset; 20 bytes. Weight i < 16 is in the
// low half of byte i, weight i + 16 in the high one.
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require

#define PER 32u

struct Block {
    float16_t scale;
    float16_t low;
    uint8_t q[16];
};

layout(set = 0, binding = 0, std430) readonly buffer W { Block w[]; };

float weight(uint b, uint i) {
    uint q = uint(w[b].q[i % 16u]) >> (i / 16u * 4u) & 15u;
    return float(w[b].scale) * float(q) + float(w[b].low);
}
