// GGUF's q5_k: 256 weights in 176 bytes: q4_k, and byte l of high has the fifth bits of
// weights l, l + 32 and so on.
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require

#define PER 256u

struct Block {
    float16_t scale;
    float16_t low;
    uint8_t scales[12];
    uint8_t high[32];
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
    uint fifth = uint(w[b].high[i % 32u]) >> k & 1u;
    return float(w[b].scale) * float(scaleOf(b, k)) * float(q | fifth << 4) - float(w[b].low) * float(lowOf(b, k));
}
