// The elements of x in order, one after the other, by a workgroup; x, n and
// best.glsl are the includer's.

// The next after (last, next-1): the largest that is smaller, or is as large and
// has an index from next on. Begin with highest() and 0. Where there is none, at is
// NONE and value -infinity, and so for all that follow.
void nextBest(uint n, inout float last, inout uint next, out float value, out uint at) {
    value = lowest();
    at = NONE;
    for (uint i = gl_LocalInvocationIndex; i < n; i += LANES) {
        float v = x[i];
        if (v < last || (v == last && i >= next)) {
            offer(v, i, value, at);
        }
    }
    bestOfGroup(value, at);
    last = value;
    next = at == NONE ? NONE : at + 1u;
}

float highest() {
    return uintBitsToFloat(0x7F800000u); // infinity
}
