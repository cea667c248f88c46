#version 450
#extension GL_GOOGLE_include_directive : require

// What greedy decoding does after each step: tokens[b] becomes the index of the largest
// element of row b of the logits, the first of equal ones, and so does the place of the
// row's position in row b of the history, which keeps as many as keep says; then the
// position is one more. NaN is never the largest; with nothing else there the history
// has 0xFFFFFFFF, and tokens[b] is 0, of which the next step has an embedding.
//
//     logits: [batch][vocab]    rows: [batch][2], position and sequence    history: [batch][keep]
//
// A row of the sequence PADDING is passed over. A workgroup does a row.

#define LANES 256u
layout(local_size_x = 256) in;

layout(set = 0, binding = 0, std430) readonly buffer Logits { float logits[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Tokens { uint tokens[]; };
layout(set = 0, binding = 2, std430) buffer Rows { uint rows[]; };
layout(set = 0, binding = 3, std430) writeonly buffer History { uint history[]; };
layout(push_constant) uniform Inline { uint vocab; uint batch; uint keep; };

#include "grid.glsl"
#include "best.glsl"
#include "padding.glsl"

void main() {
    uint group;
    uint groups;
    numberGroups(group, groups);
    if (batch == 0u) {
        return;
    }
    if (!fits(batch, vocab, uint(logits.length()))) {
        tokens[outside()] = floatBitsToUint(logits[outside()]);
        return;
    }
    if (batch > uint(tokens.length())) {
        tokens[outside()] = 0u;
        return;
    }
    if (batch > uint(rows.length()) / 2u) {
        rows[outside()] = 0u;
        return;
    }
    if (keep == 0u || !fits(batch, keep, uint(history.length()))) {
        history[outside()] = 0u;
        return;
    }
    for (uint b = group; b < batch; b += groups) {
        bool padding = rows[2u * b + 1u] == PADDING;
        uint n = padding ? 0u : vocab;
        uint start = b * vocab;
        float best = lowest();
        uint at = NONE;
        for (uint i = gl_LocalInvocationIndex; i < n; i += LANES) {
            offer(logits[start + i], i, best, at);
        }
        bestOfGroup(best, at);
        if (!padding && gl_LocalInvocationIndex == 0u) {
            uint position = rows[2u * b];
            tokens[b] = at == NONE ? 0u : at;
            history[b * keep + position % keep] = at;
            rows[2u * b] = position + 1u;
        }
    }
}
