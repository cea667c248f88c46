package kernelgen

import (
	"fmt"
	"strings"
)

// openCLParams are the kernel's arguments by binding, with their contents.
var openCLParams = []struct {
	t      string
	fields []openCLField
}{
	{"uint", []openCLField{{"in_u", "const uint", 0}}},
	{"float", []openCLField{{"in_f", "const float", 0}}},
	{"uint", []openCLField{{"out_u", "uint", 0}}},
	{"float", []openCLField{{"approx", "float", 0}}},
	{"int4", []openCLField{{"in_i", "const int4", 0}}},
	{"S0", []openCLField{{"in_s", "const S0", 0}}},
	{"S0", []openCLField{{"rw_s", "S0", 0}}},
	{"uint", []openCLField{{"ex", "volatile uint", 0}}},
	{"uint", []openCLField{{"ctr_u", "uint", 0}, {"ctr_i", "int", 64}, {"own", "uint", 80}}},
	{"ulong", []openCLField{{"in_l", "const ulong", 0}}},
	{"ulong", []openCLField{{"rw_l", "ulong", 0}}},
	{"double", []openCLField{{"rw_d", "double", 0}}},
	{"uchar", []openCLField{{"in_b", "const uchar", 0}}},
	{"short", []openCLField{{"in_w", "const short", 0}}},
	{"ushort", []openCLField{{"in_h", "const ushort", 0}}},
	{"uchar", []openCLField{{"rw_b", "uchar", 0}}},
}

type openCLField struct {
	name, t string
	at      int
}

const openCLContext = `	uint lid, gid, wg, o, c_u, c_v;
	int c_i;
	float c_f;
	bool c_b;
	uint3 gl_WorkGroupID, gl_NumWorkGroups, gl_LocalInvocationID, gl_GlobalInvocationID;
	__constant Push *pc;
	__local uint *sh_a;
`

const openCLContextNames = `lid gid wg o c_u c_v c_i c_f c_b gl_WorkGroupID gl_NumWorkGroups gl_LocalInvocationID gl_GlobalInvocationID sh_a
	in_u in_f out_u approx in_i in_s rw_s ex ctr_u ctr_i own in_l rw_l rw_d in_b in_w in_h rw_b`

const openCLPrologue = `	__local uint sh_a[16];
	context ctx;
	context *C = &ctx;
	ctx.pc = b16;
	ctx.sh_a = sh_a;
	ctx.gl_WorkGroupID = (uint3)(get_group_id(0), get_group_id(1), get_group_id(2));
	ctx.gl_NumWorkGroups = (uint3)(get_num_groups(0), get_num_groups(1), get_num_groups(2));
	ctx.gl_LocalInvocationID = (uint3)(get_local_id(0), get_local_id(1), get_local_id(2));
	ctx.gl_GlobalInvocationID = (uint3)(get_global_id(0), get_global_id(1), get_global_id(2));
`

const openCLStart = `	ctx.lid = (uint)(get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * get_local_id(2)));
	ctx.wg = (uint)(get_group_id(0) + get_num_groups(0) * (get_group_id(1) + get_num_groups(1) * get_group_id(2)));
	ctx.gid = ctx.wg * N + ctx.lid;
	ctx.o = ctx.gid * 64u;
	ctx.c_u = sc_u; ctx.c_v = sc_v; ctx.c_i = sc_i; ctx.c_f = sc_f; ctx.c_b = sc_b;
	if (ctx.lid < 1u) { for (uint i = 0u; i < 16u; i++) sh_a[i] = i * 0x01010101u; }
	barrier(CLK_LOCAL_MEM_FENCE);
`

// openCLHelpers are GLSL's functions as C ones with the prefix g_, for all types
// that have them.
var openCLHelpers = func() string {
	var w strings.Builder
	w.WriteString(`#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable
#pragma OPENCL FP_CONTRACT OFF
#define OVER __attribute__((overloadable))
`)

	// For scalars and vectors of two, three and four: U, I, F, B and 1 where a
	// comparison is true (C has -1 in vectors).
	for n, v := range []string{"", "2", "3", "4"} {
		b, yes := "char"+v, "-"
		if n == 0 {
			b, yes = "bool", ""
		}
		names := strings.NewReplacer("UV", "uint"+v, "IV", "int"+v, "FV", "float"+v, "BV", b, "YES", yes)
		w.WriteString(names.Replace(openCLEach))
		if n == 0 {
			continue
		}
		w.WriteString(names.Replace(openCLVectors))
		openCLMakers(&w, n+1)
	}

	w.WriteString(openCLScalars)
	for _, t := range [][2]string{{"__global", "uint"}, {"__local", "uint"}, {"__global", "int"}, {"__global", "ulong"}} {
		prefix := "atomic_"
		if t[1] == "ulong" {
			prefix = "atom_"
		}
		for _, f := range [][2]string{{"Add", "add"}, {"Min", "min"}, {"Max", "max"}, {"And", "and"}, {"Or", "or"}, {"Xor", "xor"}, {"Exchange", "xchg"}} {
			fmt.Fprintf(&w, "OVER %s g_atomic%s(volatile %s %[1]s *p, %[1]s v) { return %[4]s%[5]s(p, v); }\n", t[1], f[0], t[0], prefix, f[1])
		}
		fmt.Fprintf(&w, "OVER %s g_atomicCompSwap(volatile %s %[1]s *p, %[1]s c, %[1]s v) { return %[3]scmpxchg(p, c, v); }\n", t[1], t[0], prefix)
	}

	return w.String()
}()

// openCLMakers are the constructors of vectors of n.
func openCLMakers(w *strings.Builder, n int) {
	for _, k := range []kind{kindBool, kindU32, kindI32, kindF32} {
		t := vectors[k][n-1]
		c, elem := t.cName(), strings.TrimRight(t.cName(), "234")
		for _, from := range []kind{kindBool, kindU32, kindI32, kindF32} {
			fmt.Fprintf(w, "OVER %s mk_%s(%s v) { return convert_%[1]s(v); }\n", c, t.name, vectors[from][n-1].cName())
		}
		fmt.Fprintf(w, "OVER %s mk_%s(%s v) { return (%[1]s)(v); }\n", c, t.name, elem)
		fmt.Fprintf(w, "OVER %s mk_%s(%s) { return (%[1]s)(%[4]s); }\n", c, t.name,
			strings.Join([]string{elem + " x", elem + " y", elem + " z", elem + " w"}[:n], ", "), strings.Join([]string{"x", "y", "z", "w"}[:n], ", "))
		if n > 2 {
			fmt.Fprintf(w, "OVER %s mk_%s(%s v, %s e) { return (%[1]s)(v, e); }\n", c, t.name, fmt.Sprintf("%s%d", elem, n-1), elem)
		}
		if n == 4 {
			fmt.Fprintf(w, "OVER %s mk_%s(%s2 v, %[3]s2 u) { return (%[1]s)(v, u); }\n", c, t.name, elem)
		}
	}
}

const openCLEach = `OVER IV iadd(IV x, IV y) { return as_IV(as_UV(x) + as_UV(y)); }
OVER IV isub(IV x, IV y) { return as_IV(as_UV(x) - as_UV(y)); }
OVER IV imul(IV x, IV y) { return as_IV(as_UV(x) * as_UV(y)); }
OVER IV ineg(IV x) { return as_IV(0u - as_UV(x)); }
OVER UV g_min(UV x, UV y) { return min(x, y); }
OVER UV g_max(UV x, UV y) { return max(x, y); }
OVER UV g_clamp(UV x, UV y, UV z) { return min(max(x, y), z); }
OVER IV g_min(IV x, IV y) { return min(x, y); }
OVER IV g_max(IV x, IV y) { return max(x, y); }
OVER IV g_clamp(IV x, IV y, IV z) { return min(max(x, y), z); }
OVER FV g_min(FV x, FV y) { return fmin(x, y); }
OVER FV g_max(FV x, FV y) { return fmax(x, y); }
OVER FV g_clamp(FV x, float y, float z) { return fmin(fmax(x, (FV)(y)), (FV)(z)); }
OVER IV g_abs(IV x) { return as_IV(abs(x)); }
OVER FV g_abs(FV x) { return fabs(x); }
OVER IV g_sign(IV x) { return YES(IV)(x > 0) - (YES(IV)(x < 0)); }
OVER FV g_sign(FV x) { return sign(x); }
OVER FV g_floor(FV x) { return floor(x); }
OVER FV g_ceil(FV x) { return ceil(x); }
OVER FV g_trunc(FV x) { return trunc(x); }
OVER FV g_roundEven(FV x) { return rint(x); }
OVER FV g_fract(FV x) { return x - floor(x); }
OVER FV g_step(FV x, FV y) { return step(x, y); }
OVER FV g_ldexp(FV x, IV y) { return ldexp(x, y); }
OVER UV g_bitfieldReverse(UV x) {
	x = (x >> 1) & 0x55555555u | (x & 0x55555555u) << 1;
	x = (x >> 2) & 0x33333333u | (x & 0x33333333u) << 2;
	x = (x >> 4) & 0x0F0F0F0Fu | (x & 0x0F0F0F0Fu) << 4;
	x = (x >> 8) & 0x00FF00FFu | (x & 0x00FF00FFu) << 8;
	return x >> 16 | x << 16;
}
OVER IV g_bitfieldReverse(IV x) { return as_IV(g_bitfieldReverse(as_UV(x))); }
OVER IV g_bitCount(UV x) { return as_IV(popcount(x)); }
OVER IV g_bitCount(IV x) { return popcount(x); }
OVER IV g_findMSB(UV x) { return 31 - as_IV(clz(x)); }
OVER IV g_findMSB(IV x) { return g_findMSB(as_UV(x ^ (x >> 31))); }
OVER IV g_findLSB(UV x) { return 31 - as_IV(clz(x & (0u - x))); }
OVER UV g_bitfieldExtract(UV x, int at, int n) { return n == 0 ? (UV)(0u) : (x << (uint)(32 - n - at)) >> (uint)(32 - n); }
OVER IV g_bitfieldExtract(IV x, int at, int n) { return n == 0 ? (IV)(0) : as_IV(as_UV(x) << (uint)(32 - n - at)) >> (32 - n); }
OVER UV g_bitfieldInsert(UV x, UV y, int at, int n) {
	uint mask = ((1u << n) - 1u) << at;
	return x & ~mask | (y << (uint)at) & mask;
}
OVER IV g_bitfieldInsert(IV x, IV y, int at, int n) { return as_IV(g_bitfieldInsert(as_UV(x), as_UV(y), at, n)); }
OVER UV g_floatBitsToUint(FV x) { return as_UV(x); }
OVER FV g_uintBitsToFloat(UV x) { return as_FV(x); }
OVER FV g_intBitsToFloat(IV x) { return as_FV(x); }
OVER UV g_uaddCarry(UV x, UV y, UV *c) { UV s = x + y; *c = as_UV(YES(IV)(s < x)); return s; }
OVER UV g_usubBorrow(UV x, UV y, UV *c) { *c = as_UV(YES(IV)(x < y)); return x - y; }
OVER void g_umulExtended(UV x, UV y, UV *high, UV *low) { *high = mul_hi(x, y); *low = x * y; }
OVER void g_imulExtended(IV x, IV y, IV *high, IV *low) { *high = mul_hi(x, y); *low = imul(x, y); }
OVER FV g_modf(FV x, FV *whole) { *whole = trunc(x); return x - *whole; }
OVER FV g_frexp(FV x, IV *e) { IV n; FV m = frexp(x, &n); *e = n; return m; }
`

const openCLVectors = `OVER FV g_max(FV x, float y) { return fmax(x, (FV)(y)); }
OVER UV g_mix(UV x, UV y, BV c) { return select(x, y, as_UV(-convert_IV(c))); }
OVER IV g_mix(IV x, IV y, BV c) { return select(x, y, -convert_IV(c)); }
OVER FV g_mix(FV x, FV y, BV c) { return select(x, y, -convert_IV(c)); }
OVER BV g_lessThan(UV x, UV y) { return -convert_BV(x < y); }
OVER BV g_greaterThanEqual(IV x, IV y) { return -convert_BV(x >= y); }
OVER BV g_equal(FV x, FV y) { return -convert_BV(x == y); }
OVER BV g_notEqual(UV x, UV y) { return -convert_BV(x != y); }
OVER BV g_lessThanEqual(FV x, FV y) { return -convert_BV(x <= y); }
OVER BV g_not(BV x) { return (BV)(1) - x; }
OVER bool g_any(BV x) { return any(-x); }
OVER bool g_all(BV x) { return all(-x); }
`

// The second half are compared with a tolerance.
const openCLScalars = `OVER float g_nf(float x) {
	float a = fabs(x);
	if (a < 0.0009765625f) return 0.0f;
	if (a < 4096.0f) return x;
	return a - floor(a * 0.000244140625f) * 4096.0f;
}
OVER float2 g_nf(float2 v) { return (float2)(g_nf(v.x), g_nf(v.y)); }
OVER float3 g_nf(float3 v) { return (float3)(g_nf(v.x), g_nf(v.y), g_nf(v.z)); }
OVER float4 g_nf(float4 v) { return (float4)(g_nf(v.x), g_nf(v.y), g_nf(v.z), g_nf(v.w)); }
OVER double g_nf(double x) {
	double a = fabs(x);
	if (a < 0.0009765625) return 0.0;
	if (a < 4096.0) return x;
	return a - floor(a * 0.000244140625) * 4096.0;
}
OVER uint g_bits(float x) { return x == 0.0f ? 0u : as_uint(x); }
OVER uint g_bits(uint x) { return x; }
OVER uint g_bits(int x) { return (uint)x; }
OVER uint g_bits(bool x) { return x ? 1u : 0u; }
OVER uint g_bits(char x) { return x ? 1u : 0u; }
OVER uint g_bits(ulong x) { return (uint)x ^ (uint)(x >> 32) * 31u; }
OVER uint g_bits(long x) { return g_bits((ulong)x); }
OVER uint g_bits(double x) { return x == 0.0 ? 0u : g_bits(as_ulong(x)); }
bool g_isnan(float x) { return isnan(x); }
bool g_isinf(float x) { return isinf(x); }
float half_float(ushort h) { return vload_half(0, (const half *)&h); }
OVER long iadd(long x, long y) { return (long)((ulong)x + (ulong)y); }
OVER long isub(long x, long y) { return (long)((ulong)x - (ulong)y); }
OVER long imul(long x, long y) { return (long)((ulong)x * (ulong)y); }
OVER long ineg(long x) { return (long)(0ul - (ulong)x); }
OVER ulong g_min(ulong x, ulong y) { return x < y ? x : y; }
OVER ulong g_max(ulong x, ulong y) { return x < y ? y : x; }
OVER long g_min(long x, long y) { return x < y ? x : y; }
OVER long g_max(long x, long y) { return x < y ? y : x; }
OVER double g_min(double x, double y) { return y < x ? y : x; }
OVER double g_max(double x, double y) { return x < y ? y : x; }
OVER long g_abs(long x) { return x < 0 ? ineg(x) : x; }
OVER long g_sign(long x) { return (x > 0) - (x < 0); }
OVER double g_abs(double x) { return fabs(x); }
OVER double g_floor(double x) { return floor(x); }
OVER double g_ceil(double x) { return ceil(x); }
OVER double g_trunc(double x) { return trunc(x); }
ulong g_packUint2x32(uint2 x) { return (ulong)x.y << 32 | x.x; }
double g_uint64BitsToDouble(ulong x) { return as_double(x); }

float g_sin(float x) { return sin(x); }
float g_cos(float x) { return cos(x); }
float g_tan(float x) { return tan(x); }
float g_asin(float x) { return asin(x); }
float g_acos(float x) { return acos(x); }
OVER float g_atan(float x) { return atan(x); }
OVER float g_atan(float y, float x) { return atan2(y, x); }
float g_sinh(float x) { return sinh(x); }
float g_cosh(float x) { return cosh(x); }
float g_tanh(float x) { return tanh(x); }
float g_exp(float x) { return exp(x); }
float g_exp2(float x) { return exp2(x); }
float g_log(float x) { return log(x); }
float g_log2(float x) { return log2(x); }
float g_pow(float x, float y) { return pow(x, y); }
float g_sqrt(float x) { return sqrt(x); }
float g_inversesqrt(float x) { return rsqrt(x); }
OVER float g_mix(float x, float y, float a) { return mix(x, y, a); }
float g_smoothstep(float a, float b, float x) { return smoothstep(a, b, x); }
float g_length(float3 x) { return length(x); }
float g_distance(float3 x, float3 y) { return distance(x, y); }
float g_dot(float3 x, float3 y) { return dot(x, y); }
float3 g_normalize(float3 x) { return normalize(x); }
float3 g_cross(float3 x, float3 y) { return cross(x, y); }
float3 g_reflect(float3 i, float3 n) { return i - 2.0f * dot(n, i) * n; }
float3 g_refract(float3 i, float3 n, float eta) {
	float d = dot(n, i), k = 1.0f - eta * eta * (1.0f - d * d);
	return k < 0.0f ? (float3)(0.0f) : eta * i - (eta * d + sqrt(k)) * n;
}
float3 g_faceforward(float3 n, float3 i, float3 ref) { return dot(ref, i) < 0.0f ? n : -n; }
float g_fma(float x, float y, float z) { return fma(x, y, z); }
float g_radians(float x) { return radians(x); }
float g_degrees(float x) { return degrees(x); }
float g_mod(float x, float y) { return x - y * floor(x / y); }
uint g_packHalf2x16(float2 v) {
	ushort h[2];
	vstore_half_rte(v.x, 0, (half *)h);
	vstore_half_rte(v.y, 1, (half *)h);
	return h[0] | (uint)h[1] << 16;
}
float2 g_unpackHalf2x16(uint x) { return (float2)(half_float((ushort)x), half_float((ushort)(x >> 16))); }
uint g_packUnorm4x8(float4 v) {
	uint4 q = convert_uint4_rte(clamp(v, 0.0f, 1.0f) * 255.0f);
	return q.x | q.y << 8 | q.z << 16 | q.w << 24;
}
float4 g_unpackUnorm4x8(uint x) { return (float4)(x & 255u, x >> 8 & 255u, x >> 16 & 255u, x >> 24) / 255.0f; }
uint g_packSnorm2x16(float2 v) {
	int2 q = convert_int2_rte(clamp(v, -1.0f, 1.0f) * 32767.0f);
	return (uint)q.x & 0xFFFFu | (uint)q.y << 16;
}
float2 g_unpackSnorm2x16(uint x) { return clamp((float2)((short)x, (short)(x >> 16)) / 32767.0f, -1.0f, 1.0f); }
`
