#version 450
layout(local_size_x = 16) in;
struct Inner { float first; mat3 a[2]; };
layout(std140, binding = 0, row_major) uniform U { Inner inner; layout(column_major) mat3x2 b; } u;
layout(std430, binding = 1) buffer M { mat4 m[]; };
layout(push_constant) uniform P { mat2 scale; vec2 by; } p;
shared mat2 s[16];
mat3 twice(mat3 x) { return x * 2.0; }
void main() {
	uint g = gl_GlobalInvocationID.x, l = gl_LocalInvocationIndex;
	s[l] = p.scale * mat2(u.b[0], p.by);
	barrier();
	mat3 t = transpose(twice(u.inner.a[l & 1u]));
	mat4 r = inverse(m[g]) * m[g];
	r[l & 3u] += vec4(t * vec3(u.inner.first), determinant(s[l ^ 1u]));
	r += outerProduct(vec4(1.0), r[0]);
	m[g] = r;
	m[g][l & 3u][1] = (p.by * s[l]).x;
}
