#version 450
#extension GL_GOOGLE_include_directive : require

// Normalises each head of the queries and keys of a batch, in place: x / sqrt(mean(x²) +
// eps) · w, with the weights q or k.
//
//     qkv: [batch][(heads + 2·kv_heads) · head_dim], queries, keys and values
//
// A workgroup does a head of a row.

#define LANES 64u
layout(local_size_x = 64) in;

layout(set = 0, binding = 0, std430) buffer QKV { float qkv[]; };
layout(set = 0, binding = 1, std430) readonly buffer Q { float q[]; };
layout(set = 0, binding = 2, std430) readonly buffer K { float k[]; };
layout(push_constant) uniform Inline { uint heads; uint kv_heads; uint head_dim; uint batch; float eps; };

#include "grid.glsl"
#include "tree.glsl"

void main() {
    uint group;
    uint groups;
    numberGroups(group, groups);
    if (batch == 0u || head_dim == 0u || (heads == 0u && kv_heads == 0u)) {
        return;
    }
    uint room = uint(qkv.length());
    bool whole = fits(heads, head_dim, room) && fits(kv_heads, head_dim, room);
    if (!whole || !fits(batch, (heads + 2u * kv_heads) * head_dim, room)) {
        qkv[outside()] = 0.0;
        return;
    }
    if (heads > 0u && head_dim > uint(q.length())) {
        qkv[outside()] = q[outside()];
        return;
    }
    if (kv_heads > 0u && head_dim > uint(k.length())) {
        qkv[outside()] = k[outside()];
        return;
    }
    uint each = heads + kv_heads;
    for (uint item = group; item < batch * each; item += groups) {
        uint head = item % each;
        uint start = (item / each * (each + kv_heads) + head) * head_dim;
        float squares = 0.0;
        for (uint i = gl_LocalInvocationIndex; i < head_dim; i += LANES) {
            float v = qkv[start + i];
            squares += v * v;
        }
        float scale = 1.0 / sqrt(sumOfGroup(squares) / float(head_dim) + eps);
        for (uint i = gl_LocalInvocationIndex; i < head_dim; i += LANES) {
            float w = 0.0;
            if (head < heads) {
                w = q[i];
            } else {
                w = k[i];
            }
            qkv[start + i] = qkv[start + i] * scale * w;
        }
    }
}
