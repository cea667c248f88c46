#version 450

// n[0] counts the launches, and n[1], n[2], ... are their numbers. The launch for whose
// number there is no room traps, behind its count.

layout(local_size_x = 1) in;

layout(set = 0, binding = 0, std430) buffer N { uint n[]; };

void main() {
    uint i = n[0];
    n[0] = i + 1u;
    n[i + 1u] = i + 1u;
}
