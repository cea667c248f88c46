// GGUF's iq4_xs: 256 weights in 136 bytes: eight times the 32 of iq4_nl. Each 32 have a
// scale of six bits, with 32 added: four in the halves of low, two in high.
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require

#define PER 256u

struct Block {
    float16_t scale;
    uint16_t high;
    uint8_t low[4];
    uint8_t q[128];
};

layout(set = 0, binding = 0, std430) readonly buffer W { Block w[]; };

// The sixteen levels, a signed byte each.
float level(uint q) {
    uint four = q < 8u ? (q < 4u ? 0xBFAD9881u : 0xF6EADDCFu) : (q < 12u ? 0x26190D01u : 0x71594535u);
    return float(int(four << (24u - q % 4u * 8u)) >> 24);
}

float weight(uint b, uint i) {
    uint k = i / 32u;
    uint q = uint(w[b].q[k * 16u + i % 16u]) >> (i % 32u / 16u * 4u) & 15u;
    uint s = (uint(w[b].low[k / 2u]) >> (k % 2u * 4u) & 15u) | (uint(w[b].high) >> (k * 2u) & 3u) << 4;
    return float(w[b].scale) * float(int(s) - 32) * level(q);
}
