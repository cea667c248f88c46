#version 450
// Compiled with -g: lines and the source are in the module.
layout(local_size_x = 128) in;
layout(std430, binding = 0) readonly buffer In { uint x[]; };
layout(std430, binding = 1) buffer Out { uint sum; };
shared uint part[128];

void main() {
    uint l = gl_LocalInvocationIndex;
    part[l] = x[gl_GlobalInvocationID.x];
    for (uint s = 64; s > 0; s >>= 1) {
        barrier();
        if (l < s)
            part[l] += part[l + s];
    }
    if (l == 0)
        atomicAdd(sum, part[0]);
}
