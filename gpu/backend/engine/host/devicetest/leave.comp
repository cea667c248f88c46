#version 450

// Fills shared and private memory with a pattern.

layout(local_size_x = 64) in;

layout(set = 0, binding = 0, std430) buffer N { uint n[]; };

shared uint s[4096];

void main() {
    uint p[64];
    for (uint i = 0u; i < 64u; i++) {
        p[i] = n[i & 3u] ^ i;
        s[gl_LocalInvocationID.x * 64u + i] = n[i & 3u];
    }
    barrier();
    uint sum = 0u;
    for (uint i = 0u; i < 64u; i++) {
        sum += p[(i * n[1]) & 63u] + s[(i * n[2]) & 4095u];
    }
    n[4u + gl_LocalInvocationID.x] = sum;
}
