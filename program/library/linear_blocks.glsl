// A kernel linear_* of weights in blocks. The includer has before this the binding W, the
// elements of a block PER, and weight(b, i), element i of block b.

layout(push_constant) uniform Inline { uint rows; uint cols; uint batch; uint add; uint y_stride; uint y_at; };
#define X_BINDING 1
#define Y_BINDING 2

#define PARTIAL(REAL, AT)                                                    \
    REAL partial(uint row, uint part, AT at) {                               \
        uint blocks = cols / PER;                                            \
        REAL sum = ZERO_##REAL;                                              \
        for (uint j = 0u; j < blocks; j++) {                                 \
            uint block = row * blocks + j;                                   \
            for (uint i = part; i < PER; i += PARTS) {                       \
                addTo(sum, weight(block, i), load(at, j * PER + i));         \
            }                                                                \
        }                                                                    \
        return sum;                                                          \
    }

#include "linear.glsl"

bool refused() {
    if (cols % PER == 0u && fits(rows, cols / PER, uint(w.length()))) {
        return false;
    }
    y[outside()] = weight(outside(), 0u);
    return true;
}
