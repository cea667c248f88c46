#version 450
// c = a · b, row-major: a is m×k, b is k×n. A workgroup computes a tile of 16×16
// through shared memory.
layout(local_size_x = 16, local_size_y = 16) in;
layout(set = 0, binding = 0, std430) readonly buffer A { float a[]; };
layout(set = 0, binding = 1, std430) readonly buffer B { float b[]; };
layout(set = 0, binding = 2, std430) writeonly buffer C { float c[]; };
layout(push_constant) uniform Inline { uint m, n, k; };

shared float tileA[16][16], tileB[16][16];

void main() {
	uint row = gl_GlobalInvocationID.y, col = gl_GlobalInvocationID.x;
	uint y = gl_LocalInvocationID.y, x = gl_LocalInvocationID.x;
	float sum = 0;
	for (uint at = 0; at < k; at += 16) {
		tileA[y][x] = row < m && at + x < k ? a[row * k + at + x] : 0;
		tileB[y][x] = at + y < k && col < n ? b[(at + y) * n + col] : 0;
		barrier();
		for (uint i = 0; i < 16; i++)
			sum += tileA[y][i] * tileB[i][x];
		barrier();
	}
	if (row < m && col < n)
		c[row * n + col] = sum;
}
