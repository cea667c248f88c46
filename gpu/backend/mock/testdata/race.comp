#version 450

// Every workgroup turns its elements round through shared memory, and forgets the
// barrier. On an engine that keeps lanes in step nobody notices.
//
// glslangValidator -V --target-env vulkan1.1 -o race.spv race.comp

layout(local_size_x = 64) in;

layout(set = 0, binding = 0, std430) buffer X { uint x[]; };

shared uint turned[64];

void main() {
    uint i = gl_LocalInvocationIndex;
    turned[63u - i] = x[gl_GlobalInvocationID.x];
    x[gl_GlobalInvocationID.x] = turned[i];
}
