#version 450

// Never ends. The loop has a way out that is never taken, so that it is a loop like
// others to a compiler.

layout(local_size_x = 64) in;

void main() {
    uint turns = 0u;
    while (turns != 0xFFFFFFFFu) {
        turns = (turns + 1u) & 0xFFFFu;
    }
}
