#version 450
layout(local_size_x = 64) in;
layout(std430, binding = 0) buffer Y { float y[]; };
void main() {
	if (gl_GlobalInvocationID.x >= uint(y.length()))
		return;
	barrier(); // W-GPU-4040
}
