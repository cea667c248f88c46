#version 450

// What it does is decided by the size of its workgroup: nothing in one of a single
// lane, and in larger ones a loop that takes as long as a word of memory says.
//
// glslangValidator -V --target-env vulkan1.1 -o sized.spv sized.comp

layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0, std430) buffer A { uint a[]; };

void main() {
    if (gl_WorkGroupSize.x > 1) {
        for (uint i = 0; i < a[0]; i++)
            a[1] = i;
    }
    a[2 + gl_LocalInvocationID.x]++;
}
