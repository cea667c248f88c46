// Sums and maxima over a workgroup of LANES lanes (a power of two) by a tree in
// shared memory. All lanes call them together.

shared float part[LANES];

float sumOfGroup(float mine) {
    uint lane = gl_LocalInvocationIndex;
    part[lane] = mine;
    barrier();
    for (uint reach = LANES / 2u; reach > 0u; reach >>= 1) {
        if (lane < reach) {
            part[lane] += part[lane + reach];
        }
        barrier();
    }
    float all = part[0];
    barrier(); // before the next use of part
    return all;
}

float maxOfGroup(float mine) {
    uint lane = gl_LocalInvocationIndex;
    part[lane] = mine;
    barrier();
    for (uint reach = LANES / 2u; reach > 0u; reach >>= 1) {
        if (lane < reach) {
            part[lane] = max(part[lane], part[lane + reach]);
        }
        barrier();
    }
    float all = part[0];
    barrier();
    return all;
}
