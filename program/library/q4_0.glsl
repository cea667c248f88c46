// GGUF's q4_0: 32 weights share a scale; 18 bytes. Weight i < 16 is in the low half of
// byte i, weight i + 16 in the high one, each with 8 added.

#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require

struct Block {
    float16_t scale;
    uint8_t q[16];
};

float low(uint q) {
    return float(int(q & 15u) - 8);
}

float high(uint q) {
    return float(int(q >> 4) - 8);
}
