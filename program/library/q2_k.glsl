// GGUF's q2_k: 256 weights in 84 bytes. Each 16 have a byte: the low half times scale is
// theirs, the high half times low is taken off. Weights of two bits: of each 128, byte l
// has l, l + 32, l + 64, l + 96.
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require

#define PER 256u

struct Block {
    uint8_t scales[16];
    uint8_t q[64];
    float16_t scale;
    float16_t low;
};

layout(set = 0, binding = 0, std430) readonly buffer W { Block w[]; };

float weight(uint b, uint i) {
    uint q = uint(w[b].q[i / 128u * 32u + i % 32u]) >> (i % 128u / 32u * 2u) & 3u;
    uint both = uint(w[b].scales[i / 16u]);
    return float(w[b].scale) * float(both & 15u) * float(q) - float(w[b].low) * float(both >> 4);
}
