#version 450
layout(local_size_x_id = 4, local_size_y_id = 9) in;
layout(constant_id = 0) const float gain = 0.5;
layout(constant_id = 1) const bool less = true;
layout(constant_id = 4) const uint WIDTH = 8;
layout(constant_id = 3) const int many = 3;
layout(std140, binding = 0) uniform U { uint n; vec3 shift; float table[3]; } u;
layout(std430, binding = 1) readonly buffer A { uint one[]; };
layout(std430, binding = 1) readonly buffer B { uvec4 four[]; };
layout(std430, set = 1, binding = 0) buffer X { uint n; uint x[]; } bufs[2];
layout(std430, set = 1, binding = 2) writeonly buffer Y { float y[]; };
shared uint part[WIDTH * 2u];
const float chosen = less ? gain : 4.0;
void main() {
	uint l = gl_LocalInvocationIndex, g = gl_WorkGroupID.x * WIDTH + l, a[WIDTH];
	for (int i = 0; i < many; i++) a[i] = one[g + uint(i)];
	part[l] = a[l % WIDTH] + four[g / 4u].w;
	barrier();
	bufs[1].x[g] = bufs[0].x[g] + part[(l + 1u) % WIDTH] + bufs[1].x.length();
	if (g < u.n) y[g] = chosen * u.shift[g % 3u] + u.table[g % 3u] + float(gl_WorkGroupSize.y);
}
