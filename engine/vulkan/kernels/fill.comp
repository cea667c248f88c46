#version 450

// Writes a pattern to n words. Does nothing behind an entry that ended early.

layout(local_size_x = 256) in;

layout(set = 0, binding = 0, std430) writeonly buffer To { uint to[]; };
layout(set = 0, binding = 1, std430) readonly buffer T { uint first; };
layout(push_constant) uniform P { uint toWord; uint n; uint pattern; uint entry; };

void main() {
    if (first < entry) {
        return;
    }

    uint lanes = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < n; i += lanes) {
        to[toWord + i] = pattern;
    }
}
