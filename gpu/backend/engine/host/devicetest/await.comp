#version 450

// Counts its rounds in n[0], where the host may see them, and ends when n[1] is not 0, or
// after n[2] rounds.

layout(local_size_x = 1) in;

layout(set = 0, binding = 0, std430) coherent buffer N { uint n[]; };

void main() {
    uint most = n[2];
    for (uint i = 0u; i < most; i++) {
        atomicAdd(n[0], 1u);
        if (atomicAdd(n[1], 0u) != 0u) {
            return;
        }
    }
}
