// GGUF's q3_k: 256 weights in 110 bytes. The low two bits are as in q2_k; byte l of high
// has the third bits of weights l, l + 32 and so on; 4 is added. Each 16 have a scale of
// six bits, with 32 added: the low four bits of eight in eight bytes, the low halves first,
// then the high two bits of all in four bytes.
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require

#define PER 256u

struct Block {
    uint8_t high[32];
    uint8_t q[64];
    uint8_t scales[12];
    float16_t scale;
};

layout(set = 0, binding = 0, std430) readonly buffer W { Block w[]; };

float weight(uint b, uint i) {
    uint q = uint(w[b].q[i / 128u * 32u + i % 32u]) >> (i % 128u / 32u * 2u) & 3u;
    uint third = uint(w[b].high[i % 32u]) >> (i / 32u) & 1u;
    uint k = i / 16u;
    uint s = uint(w[b].scales[k % 8u]) >> (k / 8u * 4u) & 15u;
    s |= (uint(w[b].scales[8u + k % 4u]) >> (k / 4u * 2u) & 3u) << 4;
    return float(w[b].scale) * float(int(s) - 32) * float(int(q | third << 2) - 4);
}
