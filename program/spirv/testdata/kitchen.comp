#version 450
// Functions, loops, a switch, shared memory and specialisation constants.
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;
layout(local_size_x = 64) in;
layout(constant_id = 4) const uint SCALE = 3;
layout(constant_id = 5) const bool FAST = true;
layout(constant_id = 6) const float BIAS = 0.5;

layout(std430, binding = 0) readonly buffer In { float x[]; };
layout(std430, binding = 1) writeonly buffer Out { float y[]; };
layout(push_constant) uniform Args { uint n; vec3 gain; } args;

shared float part[SCALE * 64];
struct Pair { float a; uint b; };

float twice(float v) { return v * 2.0; }

Pair pick(uint i, inout float v) {
    Pair p;
    p.a = v;
    switch (i % 5u) {
    case 0u: p.b = 1u; break;
    case 1u: v += 1.0;
    case 2u: p.b = 7u; break;
    default: p.b = i; p.a = twice(v);
    }
    return p;
}

void main() {
    uint i = gl_GlobalInvocationID.x, l = gl_LocalInvocationID.x;
    float sum = BIAS;
    for (uint k = i; k < args.n; k += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
        float v = x[k];
        if (v < 0.0) continue;
        if (v > 1e30) break;
        Pair p = pick(k, v);
        sum += p.a * float(p.b) + clamp(v, -1.0, 1.0);
    }
    part[l] = sum;
    barrier();
    for (uint s = gl_WorkGroupSize.x / 2; s > 0; s /= 2) {
        if (l < s) part[l] += part[l + s];
        barrier();
    }
    if (l == 0 && FAST) y[gl_WorkGroupID.x] = part[0] * args.gain[SCALE % 3];
}
