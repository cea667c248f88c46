#version 450
#extension GL_GOOGLE_include_directive : require

// c[m][n] = a[m][k] · b[k][n], row-major. A workgroup does tiles of c, a lane one
// element of a tile.

#define TILE 16u
layout(local_size_x = 16, local_size_y = 16) in;

layout(set = 0, binding = 0, std430) readonly buffer A { float a[]; };
layout(set = 0, binding = 1, std430) readonly buffer B { float b[]; };
layout(set = 0, binding = 2, std430) writeonly buffer C { float c[]; };
layout(push_constant) uniform Inline { uint m; uint n; uint k; };

#include "grid.glsl"

void main() {
    uint group;
    uint groups;
    numberGroups(group, groups);
    if (!fits(m, k, uint(a.length()))) {
        c[outside()] = a[outside()];
        return;
    }
    if (!fits(k, n, uint(b.length()))) {
        c[outside()] = b[outside()];
        return;
    }
    if (!fits(m, n, uint(c.length()))) {
        c[outside()] = 0.0;
        return;
    }
    uint down = m / TILE + min(m % TILE, 1u);
    uint across = n / TILE + min(n % TILE, 1u);
    for (uint tile = group; tile < down * across; tile += groups) {
        uint row = tile / across * TILE + gl_LocalInvocationID.y;
        uint col = tile % across * TILE + gl_LocalInvocationID.x;
        if (row < m && col < n) {
            uint start = row * k;
            float sum = 0.0;
            for (uint i = 0u; i < k; i++) {
                sum += a[start + i] * b[i * n + col];
            }
            c[row * n + col] = sum;
        }
    }
}
