// The loops that the native bodies are compared with, as one would write them in C.
// The program serves its standard input: a line "NAME REPEATS" runs a loop so often
// and is answered with the nanoseconds of processor time that it took. It works on
// the very memory that the native bodies work on.
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { SIDE = 2048, SMALL = 288, N = 512 };

static void matvec(float *restrict y, const float *restrict m, const float *restrict x) {
	for (int r = 0; r < SIDE; r++) {
		float sum = 0;
		for (int i = 0; i < SIDE; i++)
			sum += m[r * SIDE + i] * x[i];
		y[r] = sum;
	}
}

// The same, of a size that small language models have: it stays in a cache.
static void matvec_small(float *restrict y, const float *restrict m, const float *restrict x) {
	for (int r = 0; r < SMALL; r++) {
		float sum = 0;
		for (int i = 0; i < SMALL; i++)
			sum += m[r * SMALL + i] * x[i];
		y[r] = sum;
	}
}

// Rows of b times elements of a: what a compiler vectorises best of the naive ones.
static void matmul_ikj(float *restrict c, const float *restrict a, const float *restrict b) {
	memset(c, 0, sizeof(float) * N * N);
	for (int i = 0; i < N; i++)
		for (int k = 0; k < N; k++) {
			float f = a[i * N + k];
			for (int j = 0; j < N; j++)
				c[i * N + j] += f * b[k * N + j];
		}
}

// Tiles of c in registers, panels of b packed. With GCC's vectors, since its own
// vectoriser does not keep such tiles in registers.
#ifdef __AVX512F__
enum { LANES = 16, ROWS = 8 };
#else
enum { LANES = 8, ROWS = 4 };
#endif
enum { COLS = 2 * LANES, DEPTH = 256 };
typedef float vec __attribute__((vector_size(4 * LANES)));
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4)));

static void matmul_blocked(float *restrict c, const float *restrict a, const float *restrict b) {
	static float panel[DEPTH][COLS] __attribute__((aligned(64)));
	memset(c, 0, sizeof(float) * N * N);
	for (int j = 0; j < N; j += COLS)
		for (int k = 0; k < N; k += DEPTH) {
			for (int p = 0; p < DEPTH; p++)
				memcpy(panel[p], &b[(k + p) * N + j], sizeof panel[p]);
			for (int i = 0; i < N; i += ROWS) {
				vec left[ROWS], right[ROWS];
#pragma GCC unroll 8
				for (int r = 0; r < ROWS; r++) {
					left[r] = *(loose *)&c[(i + r) * N + j];
					right[r] = *(loose *)&c[(i + r) * N + j + LANES];
				}
				for (int p = 0; p < DEPTH; p++) {
					vec l = *(vec *)&panel[p][0], h = *(vec *)&panel[p][LANES];
#pragma GCC unroll 8
					for (int r = 0; r < ROWS; r++) {
						float f = a[(i + r) * N + k + p];
						left[r] += f * l;
						right[r] += f * h;
					}
				}
#pragma GCC unroll 8
				for (int r = 0; r < ROWS; r++) {
					*(loose *)&c[(i + r) * N + j] = left[r];
					*(loose *)&c[(i + r) * N + j + LANES] = right[r];
				}
			}
		}
}

int main(void) {
	// m, x, y, a, b and c, one after the other, in the file that is descriptor 3.
	size_t bytes = sizeof(float) * ((size_t)SIDE * SIDE + 2 * SIDE + 3 * N * N);
	float *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, 3, 0);
	if (m == MAP_FAILED) {
		perror("loops: the memory to work on");
		return 1;
	}
	float *x = m + SIDE * SIDE, *y = x + SIDE, *a = y + SIDE, *b = a + N * N, *c = b + N * N;
	char name[32];
	int repeats;
	while (scanf("%31s %d", name, &repeats) == 2) {
		struct timespec from, to;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
		for (int i = 0; i < repeats; i++) {
			if (!strcmp(name, "matvec"))
				matvec(y, m, x);
			else if (!strcmp(name, "small"))
				matvec_small(y, m, x);
			else if (!strcmp(name, "ikj"))
				matmul_ikj(c, a, b);
			else
				matmul_blocked(c, a, b);
			__asm__ volatile("" ::: "memory");
		}
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
		printf("%lld\n", (to.tv_sec - from.tv_sec) * 1000000000ll + (to.tv_nsec - from.tv_nsec));
		fflush(stdout);
	}
	return 0;
}
