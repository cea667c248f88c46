// What the kernels linear_* share: y = or y += w · x for each of the batch rows of x, with
// w of the includer's type. A workgroup does ROWS rows of w, with PARTS lanes each, for
// up to PARTS rows of x at a time: lanes beside each other read weights beside each
// other, and a weight that was read is used for all these rows of x.
//
// The includer has before this the binding W and a macro PARTIAL(REAL, AT) that makes
// the function
//
//     REAL partial(uint row, uint part, AT at)
//
// the lane's share of a row of w times the row of x that begins at at: REAL and AT are
// float and uint, or those of four rows of x, or of eight. It begins with ZERO_REAL;
// load(at, i) is element i of these rows, and addTo(sum, weight, v) is sum += weight · v.
// The order of a sum is the same whatever REAL is. After this the includer has the
// function refused(), which says whether w does not fit, and touches what is too short.

#define PARTS 8u
#define ROWS 32u
#define LANES (PARTS * ROWS)
layout(local_size_x = 8, local_size_y = 32) in;

layout(set = 0, binding = X_BINDING, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = Y_BINDING, std430) buffer Y { float y[]; };

#include "grid.glsl"

struct Eight {
    vec4 low;
    vec4 high;
};

struct EightAt {
    uvec4 low;
    uvec4 high;
};

float load(uint at, uint i) {
    return x[at + i];
}

vec4 load(uvec4 at, uint i) {
    return vec4(x[at.x + i], x[at.y + i], x[at.z + i], x[at.w + i]);
}

Eight load(EightAt at, uint i) {
    return Eight(load(at.low, i), load(at.high, i));
}

void addTo(inout float sum, float weight, float v) {
    sum += weight * v;
}

void addTo(inout vec4 sum, float weight, vec4 v) {
    sum += weight * v;
}

void addTo(inout Eight sum, float weight, Eight v) {
    sum.low += weight * v.low;
    sum.high += weight * v.high;
}

#define ZERO_float 0.0
#define ZERO_vec4 vec4(0.0)
#define ZERO_Eight Eight(vec4(0.0), vec4(0.0))

PARTIAL(float, uint)
PARTIAL(vec4, uvec4)
PARTIAL(Eight, EightAt)

shared float shares[PARTS * LANES]; // of every lane, for each row of x

void keep(uint lane, uint from, vec4 sums) {
    shares[from * LANES + lane] = sums.x;
    shares[(from + 1u) * LANES + lane] = sums.y;
    shares[(from + 2u) * LANES + lane] = sums.z;
    shares[(from + 3u) * LANES + lane] = sums.w;
}

bool refused();

void main() {
    uint group;
    uint groups;
    numberGroups(group, groups);
    if (rows == 0u || batch == 0u || refused()) {
        return;
    }
    if (!fits(batch, cols, uint(x.length()))) {
        y[outside()] = x[outside()];
        return;
    }
    uint room = uint(y.length());
    bool apart = batch == 1u || rows <= y_stride; // no element of y is another's too
    if (!apart || y_at > room || rows > room - y_at || !fits(batch - 1u, y_stride, room - y_at - rows)) {
        y[outside()] = 0.0;
        return;
    }
    uint lane = gl_LocalInvocationIndex;
    uint part = gl_LocalInvocationID.x;
    uint blocks = rows / ROWS + min(rows % ROWS, 1u);
    uint tiles = batch / PARTS + min(batch % PARTS, 1u);
    for (uint item = group; item < blocks * tiles; item += groups) {
        // The last block begins earlier, if it can, so that all its lanes have a row.
        uint from = item / tiles * ROWS;
        uint row = min(from, max(rows, ROWS) - ROWS) + gl_LocalInvocationID.y;
        uint b = item % tiles * PARTS;
        uint last = min(batch - b, PARTS) - 1u;
        if (row < rows) {
            uvec4 low = (b + min(uvec4(0u, 1u, 2u, 3u), uvec4(last))) * cols;
            uvec4 high = (b + min(uvec4(4u, 5u, 6u, 7u), uvec4(last))) * cols;
            if (last == 0u) {
                shares[lane] = partial(row, part, low.x);
            } else if (last < 4u) {
                keep(lane, 0u, partial(row, part, low));
            } else {
                Eight sums = partial(row, part, EightAt(low, high));
                keep(lane, 0u, sums.low);
                keep(lane, 4u, sums.high);
            }
        }
        barrier();
        // Of the lanes of a row of w, each does a row of x.
        if (row >= from && row < rows && part <= last) {
            uint start = part * LANES + lane - part;
            float sum = 0.0;
            for (uint i = 0u; i < PARTS; i++) {
                sum += shares[start + i];
            }
            uint at = (b + part) * y_stride + y_at + row;
            if (add != 0u) {
                sum += y[at];
            }
            y[at] = sum;
        }
        barrier(); // before the next use of shares
    }
}
