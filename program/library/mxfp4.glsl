// GGUF's mxfp4: 32 weights of four bits, e2m1, share an exponent; 17 bytes. The halves of
// bytes lie as in q4_0. Exponent e means 2^(e-127), also 255, as ggml has it; levels are
// doubled, and the scale is half.
#extension GL_EXT_shader_8bit_storage : require

#define PER 32u

struct Block {
    uint8_t exponent;
    uint8_t q[16];
};

layout(set = 0, binding = 0, std430) readonly buffer W { Block w[]; };

// The levels of the magnitude, doubled: a byte each.
float level(uint q) {
    uint four = (q & 4u) == 0u ? 0x03020100u : 0x0C080604u;
    int v = int(four >> (q % 4u * 8u) & 255u);
    return float(q < 8u ? v : -v);
}

float weight(uint b, uint i) {
    uint q = uint(w[b].q[i % 16u]) >> (i / 16u * 4u) & 15u;
    uint e = uint(w[b].exponent);
    float scale = uintBitsToFloat(e < 2u ? 0x00200000u << e : (e - 1u) << 23);
    return scale * level(q);
}
