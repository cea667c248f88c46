#version 450
#extension GL_GOOGLE_include_directive : require

// c[m][n] = a[m][k] · b[k][n], row-major. As matmul_f32, but the tiles of a and b
// that a workgroup reads go through shared memory.

#define TILE 16u
layout(local_size_x = 16, local_size_y = 16) in;

layout(set = 0, binding = 0, std430) readonly buffer A { float a[]; };
layout(set = 0, binding = 1, std430) readonly buffer B { float b[]; };
layout(set = 0, binding = 2, std430) writeonly buffer C { float c[]; };
layout(push_constant) uniform Inline { uint m; uint n; uint k; };

#include "grid.glsl"

shared float tileA[TILE][TILE];
shared float tileB[TILE][TILE];

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
    uint x = gl_LocalInvocationID.x;
    uint y = gl_LocalInvocationID.y;
    for (uint tile = group; tile < down * across; tile += groups) {
        uint row = tile / across * TILE + y;
        uint col = tile % across * TILE + x;
        float sum = 0.0;
        for (uint base = 0u; base < k; base += TILE) {
            float fromA = 0.0;
            if (row < m && base + x < k) {
                fromA = a[row * k + base + x];
            }
            tileA[y][x] = fromA;
            float fromB = 0.0;
            if (base + y < k && col < n) {
                fromB = b[(base + y) * n + col];
            }
            tileB[y][x] = fromB;
            barrier();
            uint depth = min(k - base, TILE);
            for (uint i = 0u; i < depth; i++) {
                sum += tileA[y][i] * tileB[i][x];
            }
            barrier();
        }
        if (row < m && col < n) {
            c[row * n + col] = sum;
        }
    }
}
