// GGUF's q8_0: 32 weights share a scale; 34 bytes.

#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require

struct Block {
    float16_t scale;
    int8_t q[32];
};
