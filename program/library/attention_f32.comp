#version 450
#extension GL_GOOGLE_include_directive : require

// One query against a cache of length keys and values, for every head: the mean of
// the values, weighted with softmax(q·k / sqrt(head_dim)).
//
//     q, result: [heads][head_dim]    k, v: [length][kv_heads][head_dim]
//
// Head h uses the keys and values of head h / (heads / kv_heads). A workgroup does a
// head: LANES positions at a time, a lane first scores one of them, then sums the
// values of some of the head's dimensions. What was summed before is rescaled when
// a new maximum comes up. Without a position the result is 0.

#define LANES 64u
#define MOST_DIM 256u
#define PER_LANE (MOST_DIM / LANES)
layout(local_size_x = 64) in;

layout(set = 0, binding = 0, std430) readonly buffer Q { float q[]; };
layout(set = 0, binding = 1, std430) readonly buffer K { float k[]; };
layout(set = 0, binding = 2, std430) readonly buffer V { float v[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Out { float result[]; };
layout(push_constant) uniform Inline { uint heads; uint kv_heads; uint head_dim; uint length; };

#include "grid.glsl"
#include "tree.glsl"

shared float query[MOST_DIM];
shared float weights[LANES];

void main() {
    uint group;
    uint groups;
    numberGroups(group, groups);
    if (heads == 0u || head_dim == 0u) {
        return;
    }
    if (head_dim > MOST_DIM || kv_heads == 0u || heads % max(kv_heads, 1u) != 0u || !fits(heads, head_dim, uint(q.length()))) {
        result[outside()] = q[outside()];
        return;
    }
    uint width = kv_heads * head_dim; // of one position: at most heads * head_dim
    if (!fits(length, width, uint(k.length()))) {
        result[outside()] = k[outside()];
        return;
    }
    if (!fits(length, width, uint(v.length()))) {
        result[outside()] = v[outside()];
        return;
    }
    if (heads * head_dim > uint(result.length())) {
        result[outside()] = 0.0;
        return;
    }
    uint lane = gl_LocalInvocationIndex;
    uint share = heads / kv_heads;
    float scale = 1.0 / sqrt(float(head_dim));
    for (uint head = group; head < heads; head += groups) {
        uint start = head / share * head_dim;
        for (uint d = lane; d < head_dim; d += LANES) {
            query[d] = q[head * head_dim + d] * scale;
        }
        barrier();
        float sums[PER_LANE]; // of the dimensions lane, lane + LANES, …
        for (uint j = 0u; j < PER_LANE; j++) {
            sums[j] = 0.0;
        }
        float most = -3.402823466e38;
        float total = 0.0;
        for (uint base = 0u; base < length; base += LANES) {
            uint count = min(length - base, LANES);
            float score = -3.402823466e38;
            if (lane < count) {
                uint at = (base + lane) * width + start;
                score = 0.0;
                for (uint d = 0u; d < head_dim; d++) {
                    score += query[d] * k[at + d];
                }
            }
            float before = most;
            most = max(most, maxOfGroup(score));
            float keep = exp(before - most);
            float weight = 0.0;
            if (lane < count) {
                weight = exp(score - most);
            }
            // The barriers of maxOfGroup are between the last use of weights and this,
            // those of sumOfGroup between this and the next.
            weights[lane] = weight;
            total = total * keep + sumOfGroup(weight);
            for (uint j = 0u; j * LANES < head_dim; j++) {
                uint d = j * LANES + lane;
                if (d < head_dim) {
                    uint at = base * width + start + d;
                    float sum = sums[j] * keep;
                    for (uint i = 0u; i < count; i++) {
                        sum += weights[i] * v[at + i * width];
                    }
                    sums[j] = sum;
                }
            }
        }
        for (uint j = 0u; j * LANES < head_dim; j++) {
            uint d = j * LANES + lane;
            if (d < head_dim) {
                result[head * head_dim + d] = length == 0u ? 0.0 : sums[j] / total;
            }
        }
    }
}
