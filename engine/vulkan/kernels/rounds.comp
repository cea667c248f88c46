#version 450

// Counts as many rounds as n[0] says, in n[1].

layout(local_size_x = 1) in;

layout(set = 0, binding = 0, std430) buffer N { uint n[]; };
layout(set = 0, binding = 1, std430) readonly buffer T { uint first; };
layout(push_constant) uniform P { uint entry; };

void main() {
    if (first < entry) {
        return;
    }

    uint rounds = 0u;
    for (uint i = 0u; i < n[0]; i++) {
        rounds += 1u + (i >> 31);
    }
    n[1] = rounds;
}
