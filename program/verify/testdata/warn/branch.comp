#version 450
layout(local_size_x = 64) in;
void main() {
	if (gl_LocalInvocationIndex < 3u)
		barrier(); // W-GPU-4040
	barrier();
}
