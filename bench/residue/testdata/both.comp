#version 450

// Fills all memory that a workgroup has of its own with a pattern, or reads it without
// having written it: shared memory of fixed and of dynamic length, and private memory.
//
// glslangValidator -V --target-env vulkan1.1 -o both.spv both.comp

layout(local_size_x = 64) in;

layout(constant_id = 3) const uint dynamicLength = 1;

layout(set = 0, binding = 0, std430) buffer Out { uint o[]; };

layout(push_constant) uniform Args { uint pattern; };

shared uint fixedMemory[4096];
shared uint dynamicMemory[dynamicLength];

void main() {
    uint lane = gl_LocalInvocationID.x;
    uint own[64];
    if (pattern != 0u) {
        for (uint i = lane; i < 4096u; i += 64u) fixedMemory[i] = pattern;
        for (uint i = lane; i < dynamicLength; i += 64u) dynamicMemory[i] = pattern;
        uint sum = 0u;
        for (uint i = 0u; i < 64u; i++) own[i] = pattern;
        for (uint i = 0u; i < 64u; i++) sum += own[(i * 7u + lane) % 64u];
        o[lane] = sum;
        return;
    }
    for (uint i = lane; i < 4096u; i += 64u) o[i] = fixedMemory[i];
    for (uint i = lane; i < dynamicLength; i += 64u) o[4096u + i] = dynamicMemory[i];
    for (uint i = 0u; i < 64u; i++) o[8192u + lane * 64u + (i * 7u + lane) % 64u] = own[(i * 7u + lane) % 64u];
}
