#version 450
layout(local_size_x = 64) in;

// Nothing: what a launch costs by itself.
void main() {
}
