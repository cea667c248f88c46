// What the kernels linear_* share: y += or = w · x for the batch rows of x, with w of
// the includer's type. A workgroup does ROWS rows of w, PARTS lanes each, for TILE rows
// of x at a time: lanes beside each other read weights beside each other, and a weight
// that was read is used for all TILE rows of x.
//
// The includer has before this the binding W and a macro PARTIAL(REAL, AT) that makes
// the function
//
//     REAL partial(uint row, uint part, AT at)
//
// the lane's share of a row of w times the row of x that begins at at; REAL and AT are
// float and uint, or vec4 and uvec4 for TILE rows of x. load(at, i) is element i of x.
// The order of a row's sum is the same either way. After this it has the function
// refused(), which says whether w does not fit, and touches what is too short.

#define LANES 256u
#define PARTS 8u
#define ROWS (LANES / PARTS)
#define TILE 4u
layout(local_size_x = 256) in;

layout(set = 0, binding = X_BINDING, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = Y_BINDING, std430) buffer Y { float y[]; };

#include "grid.glsl"

float load(uint at, uint i) {
    return x[at + i];
}

vec4 load(uvec4 at, uint i) {
    return vec4(x[at.x + i], x[at.y + i], x[at.z + i], x[at.w + i]);
}

PARTIAL(float, uint)
PARTIAL(vec4, uvec4)

shared float shares[TILE * LANES];

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
    uint part = lane % PARTS;
    uint blocks = rows / ROWS + min(rows % ROWS, 1u);
    uint tiles = batch / TILE + min(batch % TILE, 1u);
    for (uint item = group; item < blocks * tiles; item += groups) {
        uint row = item / tiles * ROWS + lane / PARTS;
        uint b = item % tiles * TILE;
        uint count = min(batch - b, TILE);
        if (row < rows) {
            if (count == 1u) {
                shares[lane] = partial(row, part, b * cols);
            } else {
                uvec4 of = b + min(uvec4(0u, 1u, 2u, 3u), uvec4(count - 1u));
                vec4 sums = partial(row, part, of * cols);
                shares[lane] = sums.x;
                shares[lane + LANES] = sums.y;
                shares[lane + 2u * LANES] = sums.z;
                shares[lane + 3u * LANES] = sums.w;
            }
        }
        barrier();
        if (row < rows && part < count) { // of the lanes of a row, one does a row of x
            uint from = part * LANES + lane - part;
            float sum = 0.0;
            for (uint i = 0u; i < PARTS; i++) {
                sum += shares[from + i];
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
