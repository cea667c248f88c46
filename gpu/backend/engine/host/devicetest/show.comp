#version 450

// Shows shared and private memory as a program finds it.

layout(local_size_x = 64) in;

layout(set = 0, binding = 0, std430) buffer N { uint n[]; };

shared uint s[4096];

void main() {
    uint p[64];
    for (uint i = 0u; i < 64u; i++) {
        uint at = gl_LocalInvocationID.x * 64u + i;
        n[at] = s[at];
        n[4096u + at] = p[(i + n[8192]) & 63u];
    }
}
