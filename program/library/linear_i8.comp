#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_8bit_storage : require

// y = w · x, or y += w · x, for a batch of x: w[rows][cols] in signed bytes, row-major,
// with a scale in s for each run of so many as a group has. See linear.glsl.

layout(set = 0, binding = 0, std430) readonly buffer W { int8_t w[]; };
layout(set = 0, binding = 1, std430) readonly buffer S { float s[]; };
layout(push_constant) uniform Inline {
    uint rows; uint cols; uint batch; uint add; uint y_stride; uint y_at; uint group;
};

#define X_BINDING 2
#define Y_BINDING 3
#define PARTIAL(REAL, AT)                                   \
    REAL partial(uint row, uint part, AT at) {              \
        uint start = row * cols;                            \
        REAL sum = ZERO_##REAL;                             \
        for (uint i = part; i < cols; i += PARTS) {         \
            uint n = start + i;                             \
            float weight = float(int(w[n])) * s[n / group]; \
            addTo(sum, weight, load(at, i));                \
        }                                                   \
        return sum;                                         \
    }
#include "linear.glsl"

bool refused() {
    if (!fits(rows, cols, uint(w.length()))) {
        y[outside()] = float(int(w[outside()]));
        return true;
    }
    uint n = rows * cols;
    if (n > 0u && (group == 0u || (n - 1u) / max(group, 1u) >= uint(s.length()))) {
        y[outside()] = s[outside()];
        return true;
    }
    return false;
}
