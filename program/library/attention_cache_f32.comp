#version 450
#extension GL_GOOGLE_include_directive : require

// Each row of the batch against the cache of its sequence, for every head: the mean of
// the values of the positions up to the row's, weighted with softmax(scale · q·k); see
// cache.glsl for the cache. With a window, only as many positions count, the row's own
// among them. With a cap, the softmax is of cap · tanh(scale · q·k / cap).
//
//     result: [batch][heads][head_dim]
//
// Head h uses the keys and values of head h / (heads / kv_heads). A workgroup does a
// head of a row: LANES positions at a time, a lane first scores one of them, then sums
// the values of some of the head's dimensions. What was summed before is rescaled when
// a new maximum comes up. For a row of the sequence PADDING the result is 0.
//
// A position that the sequence's row of the table does not reach, or a sequence that the
// table does not have, is an access outside the table; a page number beyond the cache is
// one outside the cache.

#define LANES 64u
#define MOST_DIM 256u
#define PER_LANE (MOST_DIM / LANES)
layout(local_size_x = 64) in;

layout(set = 0, binding = 0, std430) readonly buffer QKV { float qkv[]; };
layout(set = 0, binding = 1, std430) readonly buffer Rows { uint rows[]; };
layout(set = 0, binding = 2, std430) readonly buffer Table { uint table[]; };
layout(set = 0, binding = 3, std430) readonly buffer K { float k[]; };
layout(set = 0, binding = 4, std430) readonly buffer V { float v[]; };
layout(set = 0, binding = 5, std430) writeonly buffer Out { float result[]; };
layout(push_constant) uniform Inline {
    uint heads; uint kv_heads; uint head_dim; uint batch; uint page; uint pages;
    uint window; float scale; float cap;
};

#include "grid.glsl"
#include "tree.glsl"
#include "cache.glsl"
#include "cap.glsl"

shared float query[MOST_DIM];
shared float weights[LANES];
shared uint places[LANES];

void main() {
    uint group;
    uint groups;
    numberGroups(group, groups);
    if (batch == 0u || heads == 0u || head_dim == 0u) {
        return;
    }
    if (!takes(MOST_DIM)) {
        result[outside()] = qkv[outside()];
        return;
    }
    if (batch > uint(rows.length()) / 2u) {
        result[outside()] = float(rows[outside()]);
        return;
    }
    if (!fits(batch, heads * head_dim, uint(result.length()))) {
        result[outside()] = 0.0;
        return;
    }
    uint lane = gl_LocalInvocationIndex;
    uint share = heads / kv_heads;
    uint row = rowLength();
    uint wide = width();
    uint kPages = pagesOf(uint(k.length()));
    uint vPages = pagesOf(uint(v.length()));
    for (uint item = group; item < batch * heads; item += groups) {
        uint b = item / heads;
        uint head = item % heads;
        uint position = rows[2u * b];
        uint sequence = rows[2u * b + 1u];
        bool attends = sequence != PADDING;
        if (attends && !inTable(position, sequence)) {
            result[outside()] = float(table[outside()]);
            attends = false;
        }
        for (uint d = lane; d < head_dim; d += LANES) {
            query[d] = qkv[b * row + head * head_dim + d] * scale;
        }
        barrier();
        float sums[PER_LANE]; // of the dimensions lane, lane + LANES, …
        for (uint j = 0u; j < PER_LANE; j++) {
            sums[j] = 0.0;
        }
        float most = -3.402823466e38;
        float total = 0.0;
        uint first = window != 0u && position >= window ? position - window + 1u : 0u;
        uint rounds = attends ? (position - first) / LANES + 1u : 0u;
        for (uint round = 0u; round < rounds; round++) {
            uint base = first + round * LANES;
            uint count = min(position - base, LANES - 1u) + 1u;
            float score = -3.402823466e38;
            uint place = 0u; // of the position's key and value
            if (lane < count) {
                uint at = base + lane;
                uint number = pageOf(at, sequence);
                score = 0.0;
                if (number >= kPages) {
                    score = k[outside()];
                    number = 0u;
                } else if (number >= vPages) {
                    score = v[outside()];
                    number = 0u;
                }
                place = (number * page + at % page) * wide + head / share * head_dim;
                for (uint d = 0u; d < head_dim; d++) {
                    score += query[d] * k[place + d];
                }
                score = capped(score, cap);
            }
            float before = most;
            most = max(most, maxOfGroup(score));
            float keep = exp(before - most);
            float weight = 0.0;
            if (lane < count) {
                weight = exp(score - most);
            }
            // The barriers of maxOfGroup are between the last use of weights and places
            // and this, those of sumOfGroup between this and the next.
            weights[lane] = weight;
            places[lane] = place;
            total = total * keep + sumOfGroup(weight);
            for (uint j = 0u; j * LANES < head_dim; j++) {
                uint d = j * LANES + lane;
                if (d < head_dim) {
                    float sum = sums[j] * keep;
                    for (uint i = 0u; i < count; i++) {
                        sum += weights[i] * v[places[i] + d];
                    }
                    sums[j] = sum;
                }
            }
        }
        for (uint j = 0u; j * LANES < head_dim; j++) {
            uint d = j * LANES + lane;
            if (d < head_dim) {
                result[item * head_dim + d] = attends ? sums[j] / total : 0.0;
            }
        }
    }
}
