#version 450
layout(local_size_x = 64) in;
layout(std430, binding = 0) buffer Y { uint y[]; };
uint pick(uint i) { uint r = 1u; if (i > 3u) r = 2u; return r; }
void wait() {
	barrier(); // W-GPU-4040
}
void main() {
	uint k = pick(gl_WorkGroupID.x);
	uint j = pick(gl_LocalInvocationIndex);
	if (k == 1u) barrier(); // W-GPU-4040
	switch (y[j]) { case 1u: wait(); break; default: break; }
}
