#version 450
#extension GL_GOOGLE_include_directive : require

// result[0] is an index drawn from the k largest elements with the probabilities
// softmax(x / temperature): the first, from the largest on, with which the sum of
// the probabilities is more than u, which is from [0, 1). If none is, by rounding or
// because u is too large or NaN, it is the last of them. A temperature that is not
// above 0 takes the largest. k is 1 to 64. NaN is never drawn; with nothing else
// there it is 0xFFFFFFFF. The first workgroup does it.

#define LANES 256u
#define MOST_K 64u
layout(local_size_x = 256) in;

layout(set = 0, binding = 0, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Out { uint result[]; };
layout(push_constant) uniform Inline { uint k; float temperature; float u; };

#include "grid.glsl"
#include "best.glsl"
#include "topk.glsl"

shared float weights[MOST_K];
shared uint tokens[MOST_K];

void main() {
    uint group;
    uint groups;
    numberGroups(group, groups);
    if (group != 0u) {
        return;
    }
    if (k == 0u || k > MOST_K) {
        result[outside()] = 0u;
        return;
    }
    uint lane = gl_LocalInvocationIndex;
    uint n = uint(x.length());
    uint rounds = temperature > 0.0 ? min(k, n) : 1u;
    float last = highest();
    uint next = 0u;
    float top = 0.0;
    uint count = 0u;
    for (uint i = 0u; i < rounds; i++) {
        float value;
        uint at;
        nextBest(n, last, next, value, at);
        if (i == 0u) {
            top = value;
        }
        if (at != NONE) {
            count++;
            if (lane == 0u) {
                // Of equal ones the quotient may be 0/0 or infinite.
                weights[i] = value == top ? 1.0 : exp((value - top) / temperature);
                tokens[i] = at;
            }
        }
    }
    barrier();
    if (lane == 0u) {
        float total = 0.0;
        for (uint i = 0u; i < count; i++) {
            total += weights[i];
        }
        uint token = NONE;
        float sum = 0.0;
        for (uint i = 0u; i < count; i++) {
            sum += weights[i];
            token = tokens[i];
            if (sum > u * total) {
                break;
            }
        }
        result[0] = token;
    }
}
