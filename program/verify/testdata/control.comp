#version 450
layout(local_size_x = 32) in;
layout(std430, binding = 0) buffer A { int a[]; };
int collatz(int n, inout int steps) {
	while (n != 1) {
		if ((n & 1) == 0) n /= 2; else n = 3 * n + 1;
		if (++steps > 1000) return -1;
	}
	return n;
}
int pick(int k, int x) {
	switch (k) {
	case 0: x += 1;
	case 1: x *= 2; break;
	case 5: return x - 1;
	case 7: { for (int i = 0; i < x; i++) { if (i == 3) continue; if (i == 9) break; x -= 2; } break; }
	default: x = -x;
	}
	return x;
}
void main() {
	uint i = gl_GlobalInvocationID.x;
	if (i >= uint(a.length())) return;
	int steps = 0, v = a[i], acc = 0;
	int table[8] = int[8](3, 1, 4, 1, 5, 9, 2, 6);
	v = collatz(v < 1 ? 1 : v, steps);
	for (int y = 0; y < 8; y++) {
		int x = 0;
		do {
			if (x > y) break;
			acc += table[(x + y) & 7] * pick(x, y);
			if (acc > 10000) continue;
			x++;
		} while (x < 8 && acc < 1 << 20);
		for (;;) { if (acc-- < 5) break; if ((acc & 3) == 0) { acc /= 2; continue; } acc -= 3; }
	}
	bool p = v > 0 && acc > 0 || steps == 3 ^^ v == 2;
	a[i] = p ? acc : steps;
}
