// GGUF's q6_k: 256 weights in 210 bytes. Each 16 have a signed byte that times scale is
// theirs. Of each 128, the low four bits of l and l + 64 are in byte l of 64, and the high
// two of l, l + 32, l + 64, l + 96 in byte l of 32; 32 is added.
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require

#define PER 256u

struct Block {
    uint8_t q[128];
    uint8_t high[64];
    int8_t scales[16];
    float16_t scale;
};

layout(set = 0, binding = 0, std430) readonly buffer W { Block w[]; };

float weight(uint b, uint i) {
    uint k = i % 128u;
    uint q = uint(w[b].q[i / 128u * 64u + k % 64u]) >> (k / 64u * 4u) & 15u;
    uint high = uint(w[b].high[i / 128u * 32u + k % 32u]) >> (k / 32u * 2u) & 3u;
    return float(w[b].scale) * float(int(w[b].scales[i / 16u])) * float(int(q | high << 4) - 32);
}
