#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_16bit_storage : require

// y = w · x, or y += w · x, for a batch of x: w[rows][cols] in f16,
// row-major. See linear.glsl.

layout(set = 0, binding = 0, std430) readonly buffer W { float16_t w[]; };
layout(push_constant) uniform Inline { uint rows; uint cols; uint batch; uint add; uint y_stride; uint y_at; };

#define X_BINDING 1
#define Y_BINDING 2
#define PARTIAL(REAL, AT)                               \
    REAL partial(uint row, uint part, AT at) {          \
        uint start = row * cols;                        \
        REAL sum = ZERO_##REAL;                         \
        for (uint i = part; i < cols; i += PARTS) {     \
            addTo(sum, WEIGHT(start + i), load(at, i)); \
        }                                               \
        return sum;                                     \
    }
#define WEIGHT(n) float(w[n])
#include "linear.glsl"

bool refused() {
    if (fits(rows, cols, uint(w.length()))) {
        return false;
    }
    y[outside()] = WEIGHT(outside());
    return true;
}
