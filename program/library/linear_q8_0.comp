#version 450
#extension GL_GOOGLE_include_directive : require

// y = w · x, or y += w · x, for a batch of x: w[rows][cols] in q8_0, row-major; cols is
// a multiple of 32. See linear.glsl.

#include "q8_0.glsl"

layout(set = 0, binding = 0, std430) readonly buffer W { Block w[]; };
layout(push_constant) uniform Inline { uint rows; uint cols; uint batch; uint add; uint y_stride; uint y_at; };

#define X_BINDING 1
#define Y_BINDING 2
#define PARTIAL(REAL, AT)                                                     \
    REAL partial(uint row, uint part, AT at) {                                \
        uint blocks = cols / 32u;                                             \
        REAL sum = ZERO_##REAL;                                               \
        for (uint j = 0u; j < blocks; j++) {                                  \
            uint block = row * blocks + j;                                    \
            REAL dot = ZERO_##REAL;                                           \
            for (uint k = 0u; k < 32u; k += PARTS) {                          \
                uint i = k + part;                                            \
                addTo(dot, float(int(w[block].q[i])), load(at, j * 32u + i)); \
            }                                                                 \
            addTo(sum, float(w[block].scale), dot);                           \
        }                                                                     \
        return sum;                                                           \
    }
#include "linear.glsl"

bool refused() {
    if (cols % 32u == 0u && fits(rows, cols / 32u, uint(w.length()))) {
        return false;
    }
    y[outside()] = float(w[outside()].scale);
    return true;
}
