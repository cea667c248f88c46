#version 450

// Reads every element of a, and one more.

layout(local_size_x = 1) in;

layout(set = 0, binding = 0, std430) readonly buffer A { uint a[]; };

shared uint sum; // so that what is read has a use

void main() {
    uint n = uint(a.length());
    uint all = 0u;
    for (uint i = 0u; i <= n; i++) {
        all += a[i];
    }
    sum = all;
}
