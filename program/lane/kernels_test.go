package lane_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/lane"
	"capgpu/program/verify"
)

// kernel is a program as people write them, with what it makes of its bindings.
type kernel struct {
	name     string
	env      string // "" is vulkan1.1
	source   string
	manifest *program.Manifest
	block    program.Dim3 // zero: the program's
	shared   uint32
	grid     uint32 // 0 is 1
	bindings [][]byte
	inline   []byte
	want     [][]byte // nil: as it was
}

// count is n words: f of their index.
func count(n int, f func(i uint32) uint32) []byte {
	v := make([]uint32, n)
	for i := range v {
		v[i] = f(uint32(i))
	}
	return lane.Words(v...)
}

func index(i uint32) uint32 { return i }

// halfwords is count with 16 bits.
func halfwords(n int, f func(i uint32) uint32) []byte {
	b := make([]byte, 2*n)
	for i := range n {
		binary.LittleEndian.PutUint16(b[2*i:], uint16(f(uint32(i))))
	}
	return b
}

func bytesOf(n int, f func(i uint32) uint32) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(f(uint32(i)))
	}
	return b
}

// runKernels runs each kernel on the engine, with every size of subgroups, and
// compares with what it wants, and with the model.
func runKernels(t *testing.T, kernels []kernel) {
	for _, c := range kernels {
		t.Run(c.name, func(t *testing.T) {
			env := c.env
			if env == "" {
				env = "vulkan1.1"
			}

			bundle, err := program.Encode(lane.GLSLFor(t, env, c.source), c.manifest)
			require.NoError(t, err)
			p, err := verify.Admit(bundle, verify.DefaultLimits())
			require.NoError(t, err)

			for _, subs := range []int{8, 32, 64} {
				o := lane.Options{SubgroupSize: subs, Block: c.block, SharedBytes: c.shared}
				k, err := lane.Compile(p, o)
				require.NoError(t, err)

				l := &lane.Launch{Grid: program.Dim3{X: max(1, c.grid), Y: 1, Z: 1}, Inline: c.inline}
				for _, b := range c.bindings {
					l.Bindings = append(l.Bindings, slices.Clone(b))
				}
				require.Len(t, p.Info.Bindings, len(l.Bindings))

				r := k.NewWorker().Run(l, 0, uint64(l.Grid.X), nil)
				require.Equal(t, lane.Result{}, r)
				for i, want := range c.want {
					if want == nil {
						want = c.bindings[i]
					}
					require.Equal(t, want, l.Bindings[i], "binding %d", i)
				}

				for i, b := range c.bindings {
					l.Bindings[i] = slices.Clone(b)
				}
				require.NoError(t, difference(p, o, l))
			}
		})
	}
}

// TestSpecialised: specialisation constants of any id and type are values; those of
// the workgroup's size, whatever their ids, are the launch's.
func TestSpecialised(t *testing.T) {
	const reduce = `layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WIDTH = 32;
layout(std430, binding = 0) readonly buffer X { uint x[]; };
layout(std430, binding = 1) writeonly buffer Y { uint y[]; };
shared uint part[WIDTH];
void main() {
	uint l = gl_LocalInvocationID.x, a[WIDTH];
	for (uint i = 0u; i < WIDTH; i++) a[i] = i + 1u;
	part[l] = x[gl_GlobalInvocationID.x] + a[WIDTH - 1u - l];
	barrier();
	for (uint h = WIDTH / 2u; h > 0u; h >>= 1u) { if (l < h) part[l] += part[l + h]; barrier(); }
	if (l == 0u) y[gl_WorkGroupID.x] = part[0];
}`

	const values = `layout(local_size_x = 32) in;
layout(constant_id = 0) const uint scale = 3;
layout(constant_id = 1) const float gain = 0.5;
layout(constant_id = 2) const bool less = true;
layout(constant_id = 3) const int axis = -1;
layout(constant_id = 2046) const double fine = 2.0;
layout(std430, binding = 0) buffer X { uint x[]; };
const float chosen = less ? gain : 4.0;
void main() { uint g = gl_GlobalInvocationID.x; x[g] = scale * x[g] + uint(chosen * 4.0) + uint(axis + 1) + uint(fine); }`

	const dims = `layout(local_size_x_id = 5, local_size_y_id = 9) in;
layout(std430, binding = 0) writeonly buffer Y { uint y[]; };
void main() { y[gl_LocalInvocationIndex] = gl_WorkGroupSize.x * 100u + gl_WorkGroupSize.y; }`

	double := func(f float64) uint64 { return math.Float64bits(f) }
	runKernels(t, []kernel{
		{
			name: "values by default", source: values, bindings: [][]byte{count(32, index)},
			want: [][]byte{count(32, func(i uint32) uint32 { return 3*i + 2 + 0 + 2 })},
		},
		{
			name: "values of the manifest", source: values, bindings: [][]byte{count(32, index)},
			manifest: &program.Manifest{Constants: []program.Constant{
				{ID: 0, Value: 7}, {ID: 1, Value: uint64(math.Float32bits(2.5))}, {ID: 2, Value: 0}, {ID: 3, Value: 9}, {ID: 2046, Value: double(50)},
			}},
			want: [][]byte{count(32, func(i uint32) uint32 { return 7*i + 16 + 10 + 50 })},
		},
		{
			name: "shared array of the workgroup's size", source: reduce, block: program.Dim3{X: 64, Y: 1, Z: 1}, grid: 2,
			bindings: [][]byte{count(128, index), make([]byte, 8)},
			want:     [][]byte{nil, lane.Words(63*64/2+65*64/2, 64*64+63*64/2+65*64/2)},
		},
		{
			name: "the default of the workgroup's size", source: reduce, manifest: &program.Manifest{Constants: []program.Constant{{ID: 0, Value: 8}}},
			bindings: [][]byte{count(8, index), make([]byte, 4)},
			want:     [][]byte{nil, lane.Words(28 + 36)},
		},
		{
			name: "other ids of the workgroup's size", source: dims, block: program.Dim3{X: 8, Y: 4, Z: 1}, bindings: [][]byte{make([]byte, 128)},
			want: [][]byte{count(32, func(uint32) uint32 { return 804 })},
		},
		{
			name: "two constants of one id", env: "vulkan1.3", block: program.Dim3{X: 16, Y: 1, Z: 1},
			source: `layout(local_size_x_id = 0) in;
layout(std430, binding = 0) buffer Y { uint y[]; };
void main() { y[gl_GlobalInvocationID.x] = gl_WorkGroupSize.x; }`,
			bindings: [][]byte{make([]byte, 64)}, want: [][]byte{count(16, func(uint32) uint32 { return 16 })},
		},
		{
			name: "a dynamic array of another id", shared: 128, manifest: &program.Manifest{DynamicShared: ptr(uint32(11))},
			source: `layout(local_size_x = 32) in;
layout(constant_id = 11) const uint N = 1;
layout(std430, binding = 0) buffer Y { uint y[]; };
shared uint s[N];
void main() { uint l = gl_LocalInvocationID.x; s[l] = y[l]; barrier(); y[l] = s[N - 1u - l]; }`,
			bindings: [][]byte{count(32, index)}, want: [][]byte{count(32, func(i uint32) uint32 { return 31 - i })},
		},
		{
			name: "constant 3 is the length of two shared arrays",
			source: `layout(local_size_x = 32) in;
layout(constant_id = 3) const uint N = 32;
layout(std430, binding = 0) buffer Y { uint y[]; };
shared uint s[N], u[N];
void main() { uint l = gl_LocalInvocationID.x; s[l] = y[l]; u[l] = 1u; barrier(); y[l] = s[31u - l] + u[l]; }`,
			bindings: [][]byte{count(32, index)}, want: [][]byte{count(32, func(i uint32) uint32 { return 32 - i })},
		},
	})
}

func ptr[T any](v T) *T { return &v }

// TestLaunchSizes: a launch with a workgroup that makes shared memory too large is
// refused when it is compiled.
func TestLaunchSizes(t *testing.T) {
	p, err := verify.Admit(lane.GLSL(t, `layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WIDTH = 32;
layout(std430, binding = 0) buffer Y { uint y[]; };
shared uint s[WIDTH * 32u];
void main() { uint l = gl_LocalInvocationID.x; s[l * 32u] = y[l]; barrier(); y[l] = s[(WIDTH - 1u - l) * 32u]; }`), verify.DefaultLimits())
	require.NoError(t, err)
	require.Equal(t, uint32(32*32*4), p.Info.SharedBytes)
	_, err = lane.Compile(p, lane.Options{Block: program.Dim3{X: 256, Y: 1, Z: 1}})
	require.NoError(t, err)
	_, err = lane.Compile(p, lane.Options{Block: program.Dim3{X: 512, Y: 1, Z: 1}})
	require.ErrorContains(t, err, "P-GPU-5003")
}

// TestBuffers: uniform buffers, views of one binding, descriptor sets and arrays of
// buffers.
func TestBuffers(t *testing.T) {
	f := math.Float32bits
	runKernels(t, []kernel{
		{
			name: "a uniform buffer",
			source: `layout(local_size_x = 32) in;
layout(std140, binding = 0) uniform Params { uint n; float gain; vec3 shift; float table[3]; } u;
layout(std430, binding = 1) buffer X { float x[]; };
void main() { uint g = gl_GlobalInvocationID.x; if (g < u.n) x[g] = x[g] * u.gain + u.shift[g % 3u] + u.table[g % 3u]; }`,
			bindings: [][]byte{
				lane.Words(30, f(2), 0, 0, f(10), f(20), f(30), 0, f(1), 9, 9, 9, f(2), 9, 9, 9, f(3), 9, 9, 9),
				count(32, func(i uint32) uint32 { return f(float32(i)) }),
			},
			want: [][]byte{nil, count(32, func(i uint32) uint32 {
				if i >= 30 {
					return f(float32(i))
				}
				return f(float32(2*i + 11*(i%3+1)))
			})},
		},
		{
			name: "two views of a binding",
			source: `layout(local_size_x = 32) in;
layout(std430, binding = 0) readonly buffer A { uint one[]; };
layout(std430, binding = 0) readonly buffer B { uvec4 four[]; };
layout(std430, binding = 1) writeonly buffer Y { uint y[]; };
layout(std430, binding = 1) buffer Z { float z[]; };
void main() { uint g = gl_GlobalInvocationID.x; y[g] = one[g] + four[g / 4u].w; if (g == 3u) z[g] = 1.0; }`,
			bindings: [][]byte{count(32, index), make([]byte, 128)},
			want: [][]byte{nil, count(32, func(i uint32) uint32 {
				if i == 3 {
					return f(1)
				}
				return i + i/4*4 + 3
			})},
		},
		{
			name: "two descriptor sets",
			source: `layout(local_size_x = 32) in;
layout(std430, set = 2, binding = 1) writeonly buffer Y { uint y[]; };
layout(std430, set = 1, binding = 0) readonly buffer X { uint x[]; };
void main() { y[gl_GlobalInvocationID.x] = x[gl_GlobalInvocationID.x] * 7u + 1u; }`,
			bindings: [][]byte{count(32, index), nil, make([]byte, 128)}, // set 2 has no binding 0
			want:     [][]byte{nil, nil, count(32, func(i uint32) uint32 { return 7*i + 1 })},
		},
		{
			name: "arrays of buffers",
			source: `layout(local_size_x = 32) in;
layout(constant_id = 7) const int which = 1;
layout(std430, binding = 0) buffer X { uint n; uint x[]; } bufs[3];
layout(std140, binding = 1) uniform U { uint v; } us[2];
layout(std430, binding = 2) buffer Y { uint y[]; };
void main() { uint g = gl_GlobalInvocationID.x; bufs[2].x[g] = bufs[which].x[g] ^ bufs[0].n; y[g] = us[1].v + us[0].v + bufs[2].x.length(); }`,
			bindings: [][]byte{lane.Words(0x55), count(33, index), make([]byte, 132), lane.Words(3, 0, 0, 0), lane.Words(4, 0, 0, 0), make([]byte, 128)},
			want: [][]byte{nil, nil, append(make([]byte, 4), count(32, func(i uint32) uint32 { return (i + 1) ^ 0x55 })...), nil, nil,
				count(32, func(uint32) uint32 { return 39 })},
		},
		{
			name: "236 bytes of push constants",
			source: `layout(local_size_x = 32) in;
layout(push_constant) uniform P { uint v[59]; } p;
layout(std430, binding = 31) buffer X { uint x[]; };
void main() { uint g = gl_GlobalInvocationID.x; x[g] += p.v[(g + 30u) % 59u]; }`,
			bindings: append(make([][]byte, 31), count(32, index)), inline: count(59, func(i uint32) uint32 { return 1000 * i }),
			want: append(make([][]byte, 31), count(32, func(i uint32) uint32 { return i + (i+30)%59*1000 })),
		},
	})
}

// tableOf is a kernel that looks numbers up in a constant table.
func tableOf(n uint32, f func(i uint32) uint32) string {
	var items []string
	for i := range n {
		items = append(items, fmt.Sprint(f(i), "u"))
	}
	return fmt.Sprintf(`layout(local_size_x = 32) in;
layout(std430, binding = 0) buffer X { uint x[]; };
const uint table[%[1]d] = uint[%[1]d](%s);
void main() { uint g = gl_GlobalInvocationID.x; x[g] = table[x[g] %% %[1]du]; }`, n, strings.Join(items, ", "))
}

// TestReturnBeforeBarrier: a lane with nothing left but to return has returned, so that
// a return has the same result as a jump to the end, which an optimiser makes of it.
func TestReturnBeforeBarrier(t *testing.T) {
	const head = `layout(local_size_x = 64) in;
layout(std430, binding = 0) buffer A { uint a[]; };
layout(push_constant) uniform P { uint live; };
shared uint s[64];
`
	const rest = `s[l] = a[l]; barrier();
	uint t = 0u;
	for (uint i = 0u; i < live; i++) t += s[i];
	barrier();
	a[l] = t - s[l];`
	want := count(64, func(i uint32) uint32 {
		if i >= 40 {
			return i
		}
		return 39*40/2 - i
	})

	var kernels []kernel
	for name, body := range map[string]string{
		"a return": "uint l = gl_LocalInvocationID.x; if (l >= live) return; " + rest,
		"a jump":   "uint l = gl_LocalInvocationID.x; if (l < live) { " + rest + " }",
		"a switch": "uint l = gl_LocalInvocationID.x; switch (0u) { default: if (l >= live) break; " + rest + " }",
		"a call":   "f(gl_LocalInvocationID.x);",
	} {
		source := head
		if name == "a call" {
			source += "void f(uint l) { if (l >= live) return; " + rest + " }\n"
		}
		kernels = append(kernels, kernel{
			name: name, source: source + "void main() { " + body + " }",
			bindings: [][]byte{count(64, index)}, inline: lane.Words(40), want: [][]byte{want},
		})
	}
	runKernels(t, kernels)
}
