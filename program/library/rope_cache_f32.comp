#version 450
#extension GL_GOOGLE_include_directive : require

// For each row of the batch: turns its queries in place, and writes its keys, turned,
// and its values to their places in the cache; see cache.glsl. The keys in qkv stay as
// they were. Pair i of a head is turned by position · freqs[i] and multiplied by scale; it is
// (2i, 2i+1) with pairing 0, (i, i + head_dim/2) with pairing 1. A pair of the frequency 0
// is not scaled. A lane does pairs.
//
// A position that the sequence's row of the table does not reach, or a sequence that the
// table does not have, is an access outside the table; a page number beyond the cache is
// one outside the cache.

layout(local_size_x = 256, local_size_y = 1, local_size_z = 1) in;
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(set = 0, binding = 0, std430) buffer QKV { float qkv[]; };
layout(set = 0, binding = 1, std430) readonly buffer Freqs { float freqs[]; };
layout(set = 0, binding = 2, std430) readonly buffer Rows { uint rows[]; };
layout(set = 0, binding = 3, std430) readonly buffer Table { uint table[]; };
layout(set = 0, binding = 4, std430) buffer K { float k[]; };
layout(set = 0, binding = 5, std430) buffer V { float v[]; };
layout(push_constant) uniform Inline {
    uint heads; uint kv_heads; uint head_dim; uint batch; uint pairing; uint page; uint pages;
    float scale;
};

#include "grid.glsl"
#include "cache.glsl"

void main() {
    uint first;
    uint stride;
    numberLanes(first, stride);
    if (batch == 0u || head_dim == 0u) {
        return;
    }
    if (head_dim % 2u != 0u || pairing > 1u || !takes(0xFFFFFFFFu)) {
        qkv[outside()] = 0.0;
        return;
    }
    uint half_dim = head_dim / 2u;
    if (half_dim > uint(freqs.length())) {
        qkv[outside()] = freqs[outside()];
        return;
    }
    if (batch > uint(rows.length()) / 2u) {
        qkv[outside()] = float(rows[outside()]);
        return;
    }
    uint row = rowLength();
    uint wide = width();
    uint pairs = row / 2u;
    uint kPages = pagesOf(uint(k.length()));
    uint vPages = pagesOf(uint(v.length()));
    for (uint p = first; p < batch * pairs; p += stride) {
        uint b = p / pairs;
        uint position = rows[2u * b];
        uint sequence = rows[2u * b + 1u];
        if (sequence == PADDING) {
            continue;
        }
        if (!inTable(position, sequence)) {
            qkv[outside()] = float(table[outside()]);
            continue;
        }
        uint number = pageOf(position, sequence);
        if (number >= kPages) {
            k[outside()] = 0.0;
            continue;
        }
        if (number >= vPages) {
            v[outside()] = 0.0;
            continue;
        }
        uint head = p % pairs / half_dim;
        uint i = p % half_dim;
        uint one = pairing == 0u ? 2u * i : i; // of the head
        uint two = pairing == 0u ? one + 1u : one + half_dim;
        uint from = b * row + head * head_dim;
        float re = qkv[from + one];
        float im = qkv[from + two];
        if (head < heads + kv_heads) {
            float angle = float(position) * freqs[i];
            float by = freqs[i] != 0.0 ? scale : 1.0;
            float s = sin(angle) * by;
            float c = cos(angle) * by;
            float turned = re * c - im * s;
            im = re * s + im * c;
            re = turned;
        }
        if (head < heads) {
            qkv[from + one] = re;
            qkv[from + two] = im;
            continue;
        }
        uint to = (number * page + position % page) * wide;
        if (head < heads + kv_heads) {
            to += (head - heads) * head_dim;
            k[to + one] = re;
            k[to + two] = im;
        } else {
            to += (head - heads - kv_heads) * head_dim;
            v[to + one] = re;
            v[to + two] = im;
        }
    }
}
