// A kernel embed_* of weights in blocks. The includer has before this the binding W, the
// elements of a block PER, and weight(b, i), element i of block b.

layout(set = 0, binding = 1, std430) readonly buffer Tokens { uint tokens[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Inline { uint dim; };

#include "grid.glsl"

void main() {
    uint first;
    uint stride;
    numberLanes(first, stride);
    if (dim == 0u) {
        return;
    }
    if (dim % PER != 0u || !fits(uint(tokens.length()), dim, uint(y.length()))) {
        y[outside()] = 0.0;
        return;
    }

    uint blocks = dim / PER;
    uint rows = uint(w.length()) / blocks;
    uint n = uint(tokens.length()) * dim;
    for (uint i = first; i < n; i += stride) {
        uint token = tokens[i / dim];
        uint at = token < rows ? token * blocks + i % dim / PER : outside();
        y[i] = weight(at, i % PER);
    }
}
