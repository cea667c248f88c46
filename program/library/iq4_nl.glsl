// GGUF's iq4_nl: 32 weights share a scale; 18 bytes. The halves of bytes lie as in q4_0,
// and are numbers of levels that lie closer near zero.
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require

#define PER 32u

struct Block {
    float16_t scale;
    uint8_t q[16];
};

layout(set = 0, binding = 0, std430) readonly buffer W { Block w[]; };

// The sixteen levels, a signed byte each.
float level(uint q) {
    uint four = q < 8u ? (q < 4u ? 0xBFAD9881u : 0xF6EADDCFu) : (q < 12u ? 0x26190D01u : 0x71594535u);
    return float(int(four << (24u - q % 4u * 8u)) >> 24);
}

float weight(uint b, uint i) {
    uint q = uint(w[b].q[i % 16u]) >> (i / 16u * 4u) & 15u;
    return float(w[b].scale) * level(q);
}
