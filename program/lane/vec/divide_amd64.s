#include "textflag.h"
#include "loops_amd64.h"

// The upper half of x times a number of 64 bits, whose halves are in the even
// lanes of Y12 (high) and Y13 (low). MULUDQ works on even lanes: once for these,
// once for the odd ones, which are shifted down; their result stays in place.
#define HIGHMUL(a, d) \
	VPMULUDQ Y13, a, Y8; VPSRLQ $32, Y8, Y8; \
	VPMULUDQ Y12, a, Y9; VPADDQ Y9, Y8, Y8; VPSRLQ $32, Y8, Y8; \
	VPSRLQ $32, a, Y7; \
	VPMULUDQ Y13, Y7, Y9; VPSRLQ $32, Y9, Y9; \
	VPMULUDQ Y12, Y7, Y7; VPADDQ Y9, Y7, Y7; \
	VPBLENDD $0xAA, Y7, Y8, d

// func(dst, a []uint32, c uint64, …)
#define DIVIDEARGS \
	UNARYARGS; \
	VPBROADCASTQ c+48(FP), Y13; \
	VPSRLQ $32, Y13, Y12

// Y11 is the scalar after c.
#define SCALAR MOVL s+56(FP), AX; VMOVD AX, X11; VPBROADCASTD X11, Y11

#define UMOD(a, d) HIGHMUL(a, Y6); VPMULLD Y11, Y6, Y6; VPSUBD Y6, a, d

// Y5 is 0 or -1 by the sign; x^Y5 - Y5 is x with that sign.
#define SDIV(a, d) \
	VPSRAD $31, a, Y5; VPXOR Y11, Y5, Y5; VPABSD a, Y6; HIGHMUL(Y6, Y6); \
	VPXOR Y5, Y6, Y6; VPSUBD Y5, Y6, d
#define SREM(a, d) \
	VPSRAD $31, a, Y5; VPABSD a, Y4; HIGHMUL(Y4, Y6); VPMULLD Y11, Y6, Y6; \
	VPSUBD Y6, Y4, Y6; VPXOR Y5, Y6, Y6; VPSUBD Y5, Y6, d

TEXT ·udivByAVX2(SB), NOSPLIT, $0-56
	DIVIDEARGS
	LOOP1(HIGHMUL(Y0, Y0), HIGHMUL(Y1, Y1), HIGHMUL(Y2, Y2), HIGHMUL(Y3, Y3))

TEXT ·umodByAVX2(SB), NOSPLIT, $0-60
	DIVIDEARGS
	SCALAR
	LOOP1(UMOD(Y0, Y0), UMOD(Y1, Y1), UMOD(Y2, Y2), UMOD(Y3, Y3))

TEXT ·sdivByAVX2(SB), NOSPLIT, $0-60
	DIVIDEARGS
	SCALAR
	LOOP1(SDIV(Y0, Y0), SDIV(Y1, Y1), SDIV(Y2, Y2), SDIV(Y3, Y3))

TEXT ·sremByAVX2(SB), NOSPLIT, $0-60
	DIVIDEARGS
	SCALAR
	LOOP1(SREM(Y0, Y0), SREM(Y1, Y1), SREM(Y2, Y2), SREM(Y3, Y3))
