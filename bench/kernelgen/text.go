package kernelgen

// The fixed parts of every kernel. The first of a kernel's structs is S0. The
// specialisation constants are used through variables, except in plain arithmetic:
// glslang 12 makes invalid modules of other functions with only constants.
const buffers = `layout(std430, binding = 0) readonly buffer In0 { uint in_u[256]; };
layout(std430, binding = 1) readonly buffer In1 { float in_f[]; };
layout(std430, binding = 2) buffer Out { uint out_u[]; };
layout(std430, binding = 3) writeonly buffer Approx { float approx[]; };
layout(std430, binding = 4) readonly buffer In2 { ivec4 in_i[]; };
layout(std430, binding = 5) readonly buffer In3 { S0 in_s[]; };
layout(std430, binding = 6) buffer Own { S0 rw_s[]; };
layout(std430, binding = 7) coherent buffer Exchange { uint ex[]; };
layout(std430, binding = 8) buffer Counters { uint ctr_u[16]; int ctr_i[4]; uint own[]; };
layout(push_constant) uniform Push { uint pu; int pi; float pf; uvec2 pv; uint pa[4]; vec3 pw; } pc;
layout(constant_id = 4) const uint sc_u = 3u;
layout(constant_id = 5) const int sc_i = -2;
layout(constant_id = 6) const float sc_f = 0.75;
layout(constant_id = 7) const bool sc_b = true;
const uint sc_v = sc_u * 5u + 1u;
shared uint sh_a[16];
uint lid, gid, wg, o;
uint c_u, c_v;
int c_i;
float c_f;
bool c_b;
`

const wideBuffers = `layout(std430, binding = 9) readonly buffer In4 { uint64_t in_l[]; };
layout(std430, binding = 10) buffer Own2 { uint64_t rw_l[]; };
layout(std430, binding = 11) buffer Own3 { double rw_d[]; };
`

const narrowBuffers = `layout(std430, binding = 12) readonly buffer In5 { uint8_t in_b[]; };
layout(std430, binding = 13) readonly buffer In6 { int16_t in_w[]; };
layout(std430, binding = 14) readonly buffer In7 { float16_t in_h[]; };
layout(std430, binding = 15) buffer Own4 { uint8_t rw_b[]; };
`

// nf brings a float into the range in which it is stored. Scaling by a power of two
// and floor are exact, so all engines agree. bits is a float's bits, without the
// sign of a zero.
const helpers = `float nf(float x) {
	float a = abs(x);
	if (a < 0.0009765625) return 0.0;
	if (a < 4096.0) return x;
	return a - floor(a * 0.000244140625) * 4096.0;
}
vec2 nf(vec2 v) { return vec2(nf(v.x), nf(v.y)); }
vec3 nf(vec3 v) { return vec3(nf(v.x), nf(v.y), nf(v.z)); }
vec4 nf(vec4 v) { return vec4(nf(v.x), nf(v.y), nf(v.z), nf(v.w)); }
uint bits(float x) { return x == 0.0 ? 0u : floatBitsToUint(x); }
uint bits(uint x) { return x; }
uint bits(int x) { return uint(x); }
uint bits(bool x) { return x ? 1u : 0u; }
`

const wideHelpers = `double nf(double x) {
	double a = abs(x);
	if (a < 0.0009765625lf) return 0.0lf;
	if (a < 4096.0lf) return x;
	return a - floor(a * 0.000244140625lf) * 4096.0lf;
}
uint bits(uint64_t x) { return uint(x) ^ uint(x >> 32u) * 31u; }
uint bits(int64_t x) { return bits(uint64_t(x)); }
uint bits(double x) { return x == 0.0lf ? 0u : bits(doubleBitsToUint64(x)); }
`

const prologue = `	lid = gl_LocalInvocationIndex;
	wg = gl_WorkGroupID.x + gl_NumWorkGroups.x * (gl_WorkGroupID.y + gl_NumWorkGroups.y * gl_WorkGroupID.z);
	gid = wg * N + lid;
	o = gid * 64u;
	c_u = sc_u; c_v = sc_v; c_i = sc_i; c_f = sc_f; c_b = sc_b;
	if (lid < 1u) { for (uint i = 0u; i < 16u; i++) sh_a[i] = i * 0x01010101u; }
	barrier();
`

// Functions with results that engines may round in their own ways. F is a vec3 as
// stored. (Mesa 22.3 makes 0 of a packHalf2x16 of constants.)
var approximate = []string{
	"sin(fract($0.x) * 6.0 - 3.0)", "cos(fract($0.x) * 6.0 - 3.0)", "tan(fract($0.x))", "asin(fract($0.x) * 0.9)", "acos(fract($0.x) * 0.9)",
	"atan(clamp($0.x, -4.0, 4.0))", "atan(fract($0.x) + 0.1, fract($0.y) + 0.1)", "atan(fract($0.x) + 0.1, -0.1 - fract($0.y))",
	"sinh(fract($0.x))", "cosh(fract($0.x))", "tanh(fract($0.x) * 2.0 - 1.0)", "exp(clamp($0.x, -4.0, 4.0))", "exp2(clamp($0.x, -4.0, 4.0))",
	"log(fract($0.x) + 0.25)", "log2(fract($0.x) + 0.25)", "pow(fract($0.x) + 0.25, fract($0.y) * 4.0)", "sqrt(abs($0.x))", "inversesqrt(fract($0.x) + 0.25)",
	"$0.x / (fract($0.y) + 0.5)", "mix(fract($0.x), fract($0.y), fract($0.z))", "smoothstep(-0.5, 1.5, $0.x)",
	"length(fract($0))", "distance(fract($0), vec3(0.5, 0.25, 2.0))", "dot(fract($0), vec3(0.5, -2.0, 1.0))", "normalize(fract($0) + 0.125).y",
	"cross(fract($0), vec3(0.25, 0.5, 1.0)).z", "reflect(fract($0), vec3(0.0, 1.0, 0.0)).y", "refract(vec3(0.6, -0.8, 0.0), vec3(0.0, 1.0, 0.0), 0.25 + 0.5 * fract($0.x)).x", "faceforward(fract($0), vec3(1.0), vec3(-0.5)).x",
	"fma(fract($0.x), fract($0.y), fract($0.z))", "radians($0.x)", "degrees(fract($0.x))", "mod(floor(abs($0.x)) + 0.5, 3.0)",
	"unpackHalf2x16(packHalf2x16(($0.xy + float(gid)) * 0.0625)).y", "unpackUnorm4x8(packUnorm4x8(fract($0).xyzz)).y", "unpackSnorm2x16(packSnorm2x16(fract($0.xy) - 0.5)).x",
}
