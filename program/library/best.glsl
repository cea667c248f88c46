// The best of many elements, over a workgroup of LANES lanes (a power of two): the
// largest value, and of equal ones that with the lowest index. NaN is never the
// best. All lanes call these functions together.

const uint NONE = 0xFFFFFFFFu;

shared float bestValue[LANES];
shared uint bestIndex[LANES];

float lowest() {
    return uintBitsToFloat(0xFF800000u); // -infinity
}

// Takes v at i instead of best at at, if it is better.
void offer(float v, uint i, inout float best, inout uint at) {
    if (v > best || (v == best && i < at)) {
        best = v;
        at = i;
    }
}

// The best of what every lane brings, to every lane.
void bestOfGroup(inout float best, inout uint at) {
    uint lane = gl_LocalInvocationIndex;
    bestValue[lane] = best;
    bestIndex[lane] = at;
    barrier();
    for (uint reach = LANES / 2u; reach > 0u; reach >>= 1) {
        if (lane < reach) {
            offer(bestValue[lane + reach], bestIndex[lane + reach], best, at);
            bestValue[lane] = best;
            bestIndex[lane] = at;
        }
        barrier();
    }
    best = bestValue[0];
    at = bestIndex[0];
    barrier(); // before the next use
}
