#version 450

// Every workgroup turns its 64 elements round, through shared memory, and adds a
// number. It is no kernel of the library: the smoke client loads it.

layout(local_size_x = 64) in;

layout(set = 0, binding = 0, std430) readonly buffer X { uint x[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform Inline { uint plus; };

shared uint turned[64];

void main() {
    turned[63u - gl_LocalInvocationIndex] = x[gl_GlobalInvocationID.x];
    barrier();
    y[gl_GlobalInvocationID.x] = turned[gl_LocalInvocationIndex] + plus;
}
