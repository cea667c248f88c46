package lane_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"capgpu/program/lane"
)

// numbers are n small whole numbers as floats.
func numbers(seed uint64, n int) []float32 {
	rng := rand.New(rand.NewPCG(seed, 5))
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(rng.IntN(9) - 4)
	}
	return v
}

// TestMatrices: matrices by column and by row in memory, in arrays and in registers.
func TestMatrices(t *testing.T) {
	m, x := numbers(1, 12*6), numbers(2, 12*4)
	product := make([]float32, 12*3)
	transposed := make([]float32, 12*6)
	for g := range 12 {
		// m[g] is a mat3x2: 3 columns of 2.
		for r := range 2 {
			for c := range 3 {
				product[3*g+r] += m[6*g+2*c+r] * x[4*g+c]
				transposed[6*g+3*r+c] = m[6*g+2*c+r]
			}
		}
		product[3*g+2] = m[6*g]*m[6*g+3] - m[6*g+2]*m[6*g+1] // of the first two columns
	}

	f := math.Float32bits
	word := func(v ...float32) []byte { return lane.Floats(v...) }
	runKernels(t, []kernel{
		{
			name: "in storage buffers",
			source: `layout(local_size_x = 12) in;
layout(std430, binding = 0) readonly buffer M { mat3x2 m[]; };
layout(std430, binding = 1) readonly buffer X { vec4 x[]; };
layout(std430, binding = 2) writeonly buffer Y { float y[]; };
layout(std430, binding = 3, row_major) writeonly buffer T { mat3x2 t[]; };
void main() { uint g = gl_LocalInvocationIndex; vec2 v = m[g] * x[g].xyz;
y[3 * g] = v.x; y[3 * g + 1] = v.y; y[3 * g + 2] = determinant(mat2(m[g])); t[g] = m[g]; }`,
			bindings: [][]byte{word(m...), word(x...), make([]byte, 4*36), make([]byte, 12*32)},
			want: [][]byte{nil, nil, word(product...), func() []byte { // rows of 3, each in 16 bytes
				var b []float32
				for at := 0; at < len(transposed); at += 3 {
					b = append(b, transposed[at], transposed[at+1], transposed[at+2], 0)
				}
				return word(b...)
			}()},
		},
		{
			name: "by row in a uniform buffer, and components that are chosen at run time",
			source: `layout(local_size_x = 9) in;
struct Inner { float first; mat3 a[2]; };
layout(std140, binding = 0, row_major) uniform U { Inner inner; layout(column_major) mat3 b; };
layout(std430, binding = 1) writeonly buffer Y { float y[]; };
void main() { uint g = gl_LocalInvocationIndex, c = g / 3u, r = g % 3u; y[g] = inner.a[1][c][r] * 100.0 + b[c][r] + inner.first * 1000.0; }`,
			bindings: [][]byte{
				count(4+24+12, func(i uint32) uint32 { return f(float32(i)) }), make([]byte, 36),
			},
			// a[1] begins at word 16: row r, column c is 16 + 4r + c. b begins at 28: column c is 28 + 4c.
			want: [][]byte{nil, count(9, func(g uint32) uint32 {
				c, r := g/3, g%3
				return f(float32((16+4*r+c)*100 + 28 + 4*c + r))
			})},
		},
		{
			name: "products, the inverse, and variables",
			source: `layout(local_size_x = 4) in;
layout(push_constant) uniform P { mat2 scale; };
layout(std430, binding = 0) buffer M { mat4 m[]; };
shared mat4 s[4];
void main() { uint g = gl_LocalInvocationIndex;
mat4 a = m[g]; a[g][(g + 1u) % 4u] += 0.0; s[3u - g] = a; barrier(); mat4 b = s[3u - g];
mat4 one = inverse(b) * b; vec4 v = vec4(scale * vec2(1.0, 2.0), (vec2(1.0, 2.0) * scale));
m[g] = outerProduct(v, vec4(1.0, 0.0, 2.0, one[1][1])) + transpose(one * 2.0); }`,
			// Each matrix is triangular with powers of two: its inverse is exact.
			bindings: [][]byte{func() []byte {
				var b []float32
				for g := range 4 {
					b = append(b, 2, 0, 0, 0, float32(g), 4, 0, 0, 1, 2, 0.5, 0, 3, 0, -1, 1)
				}
				return word(b...)
			}()},
			inline: word(1, 10, 100, 1000),
			want: [][]byte{func() []byte {
				v := []float32{201, 2010, 21, 2100} // scale · (1, 2), and (1, 2) · scale
				var b []float32
				for range 4 {
					for c, k := range []float32{1, 0, 2, 1} {
						for r := range 4 {
							e := v[r] * k
							if c == r {
								e += 2
							}
							b = append(b, e)
						}
					}
				}
				return word(b...)
			}()},
		},
		{
			name: "halves",
			source: narrowTypes + `layout(local_size_x = 1) in;
layout(std430, binding = 0) buffer M { f16mat2 m; f16vec2 v; float16_t d; };
void main() { d = determinant(m); v = m * v; m = m * m * float16_t(2.0); }`,
			bindings: [][]byte{halves(t, 1, 2, 3, 4, 5, 6, 0, 0)},
			want:     [][]byte{halves(t, 2*7, 2*10, 2*15, 2*22, 23, 34, -2, 0)},
		},
	})
}
