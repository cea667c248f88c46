#version 450
layout(local_size_x = 64) in;
layout(std430, binding = 0) buffer A { uint a[]; };
layout(std430, binding = 1) buffer B { int b[4]; uint last; int tail[]; };
shared uint s[16];
shared int t;
void main() {
	uint i = gl_LocalInvocationIndex;
	if (i < 16u) s[i] = 0u;
	if (i == 0u) t = 0;
	barrier();
	atomicAdd(s[i & 15u], 1u);
	atomicMax(t, int(i));
	atomicOr(a[i], 3u);
	uint old = atomicCompSwap(a[i + 64u], 0u, i);
	old ^= atomicExchange(last, i) + atomicXor(a[i], 1u) + atomicAnd(a[i], 7u);
	atomicMin(b[i & 3u], int(old));
	memoryBarrier();
	memoryBarrierShared();
	memoryBarrierBuffer();
	groupMemoryBarrier();
	barrier();
	if (i < 16u) a[i] = s[i] + uint(t) + uint(tail.length());
}
