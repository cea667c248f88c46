#version 450
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;
layout(constant_id = 3) const uint COUNT = 64;
layout(std430, set = 0, binding = 0) buffer X { vec4 x[]; };
layout(std430, set = 0, binding = 1) buffer I { ivec4 k[]; };
shared float dyn[COUNT];
shared float fixedSize[4];
vec4 all_of(vec4 v, out int e) {
	float whole;
	vec4 r = sin(v) + cos(v) * tan(v) - asin(v) / acos(v) + atan(v) + atan(v, v.yxwz) + sinh(v) + cosh(v) + tanh(v);
	r += pow(abs(v), v) + exp(v) + log(v) + exp2(v) + log2(v) + sqrt(v) + inversesqrt(v) + sign(v) + floor(v) + ceil(v) + fract(v) + round(v) + roundEven(v) + trunc(v);
	r += mod(v, 2.0) + min(v, 1.0) + max(v, 0.5) + clamp(v, 0.0, 1.0) + mix(v, v.yzwx, 0.25) + step(v, vec4(1)) + smoothstep(0.0, 1.0, v) + fma(v, v, v);
	r.x += length(v) + distance(v, r) + dot(v, r) + modf(v.x, whole) + frexp(v.y, e) + whole + ldexp(v.z, e);
	r += normalize(v) + faceforward(v, r, v) + reflect(v, r) + refract(v, r, 1.5) + radians(v) + degrees(v);
	r.xyz = cross(r.xyz, v.xyz);
	r.x += any(isnan(v)) || all(isinf(r)) ? 1.0 : 0.0;
	r += unpackSnorm4x8(packSnorm4x8(v)) + unpackUnorm4x8(packUnorm4x8(v));
	r.xy += unpackUnorm2x16(packUnorm2x16(v.xy)) + unpackSnorm2x16(packSnorm2x16(v.xy));
	return mix(r, v, lessThan(v, r));
}
void main() {
	uint i = gl_LocalInvocationIndex;
	int e;
	ivec4 q = k[i];
	uint carry, hi, lo;
	uint a = uaddCarry(uint(q.x), i, carry) + usubBorrow(i, uint(q.y), carry);
	umulExtended(a, i, hi, lo);
	q = abs(q) + findLSB(q) - findMSB(uvec4(q)) * bitCount(q) + bitfieldReverse(q) + bitfieldExtract(q, 3, 5) + bitfieldInsert(q, q.yxwz, 2, 4);
	q = (q << 3) / max(q % 7, ivec4(1)) ^ ~q | (q >> 2) & min(q, 5) + clamp(q, -3, 9) + sign(q);
	q[int(i) & 3] += int(hi + lo + carry);
	k[i] = q;
	dyn[i] = float(q.x);
	fixedSize[i & 3u] = float(uint(q.y));
	barrier();
	vec4 v = x[i] + dyn[i ^ 1u] + fixedSize[0];
	x[i] = all_of(v, e) + vec4(e);
	x[i].z = intBitsToFloat(floatBitsToInt(v[i & 3u]));
}
