package instrument_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/instrument"
	"capgpu/program/lane"
	"capgpu/program/verify"
)

// profiled are kernels with indices from a buffer into each form of memory: matrices
// by column and row, uniform buffers, views, arrays of buffers in other descriptor
// sets, and arrays with lengths that the launch or the manifest decides.
var profiled = map[string]string{
	"matrices in buffers": `
layout(local_size_x = 8) in;
struct S { float before; mat3x2 m[2]; vec3 v; };
layout(binding = 0) buffer I { uint i[]; };
layout(binding = 1, row_major) buffer A { mat4x3 fixed_[3]; S s[2]; mat2x3 open[]; } a;
layout(binding = 2, column_major) buffer C { mat3x4 open[]; } c;
void main() {
	uint t = gl_GlobalInvocationID.x;
	a.fixed_[i[t]][i[t + 1]][i[t + 2]] = float(t);
	a.s[i[t + 1]].m[i[t]][i[t + 3]].y += a.fixed_[i[t + 1]][3][1];
	a.open[i[t + 2]][i[t]] = c.open[t][i[t + 3]].xyz + vec3(1);
	c.open[i[t]] = mat3x4(a.fixed_[i[t + 1]][0].x);
	c.open[t][i[t + 1]][i[t]] *= a.s[0].v[i[t + 2]];
}`,
	"uniform buffers": `
layout(local_size_x = 8) in;
layout(constant_id = 7) const int N = 5;
layout(binding = 0) buffer I { uint i[]; };
layout(binding = 1, std140) uniform U { uint k[N]; mat3 m[2]; layout(row_major) mat2x3 r; vec2 v[3]; } u;
layout(binding = 2, std140) uniform V { vec4 v; } one;
layout(binding = 3) buffer O { float o[]; };
void main() {
	uint t = gl_GlobalInvocationID.x;
	o[t] = float(u.k[i[t]]) + u.m[i[t + 1]][i[t]][i[t + 2]] + u.r[i[t]][i[t + 1]] + u.v[i[t + 3]].y + one.v[i[t]];
}`,
	"views and arrays of buffers": `
layout(local_size_x = 8) in;
layout(binding = 2) buffer I { uint i[]; };
layout(binding = 2) buffer J { uvec2 p[3]; uvec4 q[]; } j;
layout(set = 1, binding = 1) buffer C { float head; float f[]; } c[3];
layout(set = 3, binding = 0) buffer D { uint u[]; } d;
layout(set = 3, binding = 0) buffer E { uint64_t l[]; } e;
void main() {
	uint t = gl_GlobalInvocationID.x, n = i[t] % 40;
	c[1].f[n] = float(j.p[i[t + 1] % 4].y + c[2].f.length());
	c[0].f[t] = c[2].f[n] + c[1].head;
	d.u[n] = uint(e.l[n / 2]) + j.q[n].z + d.u.length();
}`,
	"lengths of the launch": `
layout(local_size_x_id = 4, local_size_y_id = 9) in;
layout(constant_id = 6) const uint M = 6;
layout(binding = 0) buffer I { uint i[]; };
layout(binding = 1) buffer O { uint o[]; };
shared uint s[gl_WorkGroupSize.x * 2 + 1];
shared mat3 sm[M];
shared uint deep[3][gl_WorkGroupSize.y][M];
void main() {
	uint t = gl_LocalInvocationIndex, p[M], q[gl_WorkGroupSize.y + 1];
	for (uint k = 0; k < M; k++) p[k] = k;
	for (uint k = 0; k <= gl_WorkGroupSize.y; k++) q[k] = k;
	s[gl_LocalInvocationID.x] = i[t];
	for (uint k = 0; k < 3 * M; k++) deep[k % 3][gl_LocalInvocationID.y][k / 3] = k;
	sm[gl_LocalInvocationID.x % M] = mat3(1);
	barrier();
	uint n = i[t] % 12;
	q[n] = p[n];
	o[t] = s[n] + q[n / 2] + uint(sm[n][n % 3][n % 3]) + s[3] + deep[n / 2][gl_LocalInvocationID.y][n];
}`,
	"narrow numbers": `
layout(local_size_x = 8) in;
layout(binding = 0) buffer B { int8_t b[]; };
layout(binding = 1) buffer H { int16_t h[]; };
layout(binding = 2) buffer F { float16_t f[]; };
layout(binding = 3) buffer W { uint16_t w[]; };
void main() {
	uint t = gl_GlobalInvocationID.x;
	int8_t x = b[t];
	int16_t y = h[t];
	w[t] = w[t] / uint16_t(t + 1) << uint16_t(x);
	h[t] = int16_t(f[t]) + y % int16_t(7) + (y >> int16_t(b[t + 1]));
	b[t] = x / (b[t + 1] | int8_t(16));
	f[t] = float16_t(x) * f[t + 1] + float16_t(int8_t(f[t]));
	f[uint(w[t]) % 99] = float16_t(uint16_t(f[t + 1]));
	h[x] = int16_t(uint(f[t]));
}`,
	"returns before a barrier": `
layout(local_size_x = 16) in;
layout(binding = 0) buffer I { uint i[]; };
layout(binding = 1) buffer O { uint o[]; };
shared uint s[16];
void main() {
	uint t = gl_LocalInvocationID.x;
	s[t] = i[t];
	if (t >= 8) return;
	barrier();
	if (s[t] < 3) { o[t] = s[(t + 1) % 8]; barrier(); o[i[t]] += s[t]; }
}`,
}

// TestProfile compares them, with indices that are in range and not.
func TestProfile(t *testing.T) {
	if _, err := exec.LookPath("glslangValidator"); err != nil {
		t.Skip("SKIPPED: glslangValidator is not here; install Debian's glslang-tools")
	}

	for name, source := range profiled {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "a.comp")
			head := "#version 460\n#extension GL_EXT_shader_explicit_arithmetic_types : require\n"
			require.NoError(t, os.WriteFile(file, []byte(head+source), 0o600))
			p, err := verify.Admit(compiled(t, file), verify.DefaultLimits())
			require.NoError(t, err)
			accepted(t, p)

			rng := rand.New(rand.NewPCG(11, uint64(len(source))))
			trapped, whole := 0, 0
			for n := range 40 {
				o := lane.Options{SubgroupSize: 32, Block: p.Info.Block}
				for k, size := range []*uint32{&o.Block.X, &o.Block.Y, &o.Block.Z} {
					if p.BlockIDs[k] != 0 {
						*size = 1 + rng.Uint32N(6)
					}
				}

				l := &lane.Launch{Grid: program.Dim3{X: 1, Y: 1, Z: 1}}
				for range p.Info.Bindings {
					b := make([]byte, 4*(60+rng.IntN(300)))
					for k := 0; k < len(b); k += 4 {
						if rng.IntN(8) < n%4 {
							b[k] = byte(rng.IntN(1 + n/10*2))
						}
						if rng.IntN(400) < n/10 {
							b[k+rng.IntN(4)] = byte(rng.Uint32())
						}
					}
					l.Bindings = append(l.Bindings, b)
				}

				v, err := difference(t, p, o, l, 1<<13)
				require.NoError(t, err, "launch %d, %+v", n, o)
				trapped += number(v.trapped)
				whole += number(!v.trapped)
			}
			t.Logf("%d launches trapped, %d did not", trapped, whole)
			require.NotZero(t, whole)
		})
	}
}

// TestRareForms: forms that are refused, with the instruction.
func TestRareForms(t *testing.T) {
	if _, err := exec.LookPath("glslangValidator"); err != nil {
		t.Skip("SKIPPED: glslangValidator is not here; install Debian's glslang-tools")
	}

	for op, source := range map[string]string{
		"OpAccessChain": `
layout(local_size_x = 8) in;
layout(constant_id = 5) const int N = 0;
layout(binding = 0) buffer C { float f[]; } c[3];
void main() { c[N + 1].f[gl_LocalInvocationID.x] = c[N].f[0]; }`,
		"OpVariable": `
layout(local_size_x_id = 5) in;
struct S { uint a[gl_WorkGroupSize.x]; uint b; };
layout(binding = 0) buffer O { uint o[]; };
shared S s;
void main() { s.b = 3; barrier(); o[gl_LocalInvocationID.x] = s.b; }`,
	} {
		file := filepath.Join(t.TempDir(), "a.comp")
		require.NoError(t, os.WriteFile(file, []byte("#version 460\n"+source), 0o600))
		p, err := verify.Admit(compiled(t, file), verify.DefaultLimits())
		require.NoError(t, err)
		_, err = instrument.Instrument(p)
		var r *program.Refusal
		require.ErrorAs(t, err, &r)
		require.Equal(t, instrument.CodeFlow, r.Code)
		require.Equal(t, op, r.Op)
	}
}
