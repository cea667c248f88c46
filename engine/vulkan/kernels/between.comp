#version 450

// Runs between two runs of lists. It writes down how those before it ended, has all later
// entries skipped if one ended early, and takes back a stop that was for earlier runs only.

layout(local_size_x = 1) in;

// The head of the trap buffer: first, stop, then ours.
layout(set = 0, binding = 0, std430) coherent buffer T { uint t[]; };
layout(push_constant) uniform P { uint turn; };

const uint FIRST = 0u, STOP = 1u, RUN = 16u, BEFORE = 24u;
const uint NONE = 0xFFFFFFFFu, ALL = 0u;

void main() {
    uint first = atomicOr(t[FIRST], 0u);
    t[BEFORE + turn] = first;
    if (first != NONE) {
        atomicExchange(t[FIRST], ALL);
    }
    uint stop = atomicOr(t[STOP], 0u);
    if (stop != 0u && int(t[RUN + turn] - stop) > 0) {
        atomicCompSwap(t[STOP], stop, 0u);
    }
}
