// GGUF's q4_k: 256 weights in 144 bytes. Each 32 have six bits that times scale are
// theirs, and six that times low are taken off. Of each 64 weights the first 32 are in the
// low halves of 32 bytes, the others in the high ones.
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require

#define PER 256u

struct Block {
    float16_t scale;
    float16_t low;
    uint8_t scales[12];
    uint8_t q[128];
};

layout(set = 0, binding = 0, std430) readonly buffer W { Block w[]; };

// The six bits of scale k, and those of the offset.
uint scaleOf(uint b, uint k) {
    if (k < 4u) {
        return uint(w[b].scales[k]) & 63u;
    }
    return (uint(w[b].scales[k + 4u]) & 15u) | uint(w[b].scales[k - 4u]) >> 6 << 4;
}

uint lowOf(uint b, uint k) {
    if (k < 4u) {
        return uint(w[b].scales[k + 4u]) & 63u;
    }
    return uint(w[b].scales[k + 4u]) >> 4 | uint(w[b].scales[k]) >> 6 << 4;
}

float weight(uint b, uint i) {
    uint k = i / 32u;
    uint q = uint(w[b].q[i / 64u * 32u + i % 32u]) >> (k % 2u * 4u) & 15u;
    return float(w[b].scale) * float(scaleOf(b, k)) * float(q) - float(w[b].low) * float(lowOf(b, k));
}
