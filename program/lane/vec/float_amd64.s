#include "textflag.h"
#include "loops_amd64.h"

#define FADD(b, a, d) VADDPS b, a, d
#define FSUB(b, a, d) VSUBPS b, a, d
#define FMUL(b, a, d) VMULPS b, a, d
#define FDIV(b, a, d) VDIVPS b, a, d

// MINPS is first < second ? first : second, and the second if either is a NaN.
// FMin(x, y) is y < x ? y : x, so y goes first; the assembler has it last.
#define FMIN(b, a, d) VMINPS a, b, d
#define FMAX(b, a, d) VMAXPS a, b, d

// NMin differs where x is a NaN: y. Y9 is where.
#define NMIN(b, a, d) VCMPPS $3, a, a, Y9; VMINPS a, b, Y8; VBLENDVPS Y9, b, Y8, d
#define NMAX(b, a, d) VCMPPS $3, a, a, Y9; VMAXPS a, b, Y8; VBLENDVPS Y9, b, Y8, d

TEXT ·faddAVX2(SB), NOSPLIT, $0-72
	BINARY(FADD)

TEXT ·faddVSAVX2(SB), NOSPLIT, $0-52
	BINARYVS(FADD)

TEXT ·faddSVAVX2(SB), NOSPLIT, $0-52
	BINARYSV(FADD)

TEXT ·fsubAVX2(SB), NOSPLIT, $0-72
	BINARY(FSUB)

TEXT ·fsubVSAVX2(SB), NOSPLIT, $0-52
	BINARYVS(FSUB)

TEXT ·fsubSVAVX2(SB), NOSPLIT, $0-52
	BINARYSV(FSUB)

TEXT ·fmulAVX2(SB), NOSPLIT, $0-72
	BINARY(FMUL)

TEXT ·fmulVSAVX2(SB), NOSPLIT, $0-52
	BINARYVS(FMUL)

TEXT ·fmulSVAVX2(SB), NOSPLIT, $0-52
	BINARYSV(FMUL)

TEXT ·fdivAVX2(SB), NOSPLIT, $0-72
	BINARY(FDIV)

TEXT ·fdivVSAVX2(SB), NOSPLIT, $0-52
	BINARYVS(FDIV)

TEXT ·fdivSVAVX2(SB), NOSPLIT, $0-52
	BINARYSV(FDIV)

TEXT ·fminAVX2(SB), NOSPLIT, $0-72
	BINARY(FMIN)

TEXT ·fminVSAVX2(SB), NOSPLIT, $0-52
	BINARYVS(FMIN)

TEXT ·fminSVAVX2(SB), NOSPLIT, $0-52
	BINARYSV(FMIN)

TEXT ·fmaxAVX2(SB), NOSPLIT, $0-72
	BINARY(FMAX)

TEXT ·fmaxVSAVX2(SB), NOSPLIT, $0-52
	BINARYVS(FMAX)

TEXT ·fmaxSVAVX2(SB), NOSPLIT, $0-52
	BINARYSV(FMAX)

TEXT ·nminAVX2(SB), NOSPLIT, $0-72
	BINARY(NMIN)

TEXT ·nminVSAVX2(SB), NOSPLIT, $0-52
	BINARYVS(NMIN)

TEXT ·nminSVAVX2(SB), NOSPLIT, $0-52
	BINARYSV(NMIN)

TEXT ·nmaxAVX2(SB), NOSPLIT, $0-72
	BINARY(NMAX)

TEXT ·nmaxVSAVX2(SB), NOSPLIT, $0-52
	BINARYVS(NMAX)

TEXT ·nmaxSVAVX2(SB), NOSPLIT, $0-52
	BINARYSV(NMAX)

// Y12 is the sign bit on all lanes, Y11 all others.
#define SIGNBIT VPCMPEQD Y11, Y11, Y11; VPSLLD $31, Y11, Y12; VPSRLD $1, Y11, Y11
#define FNEGATE(a, d) VPXOR Y12, a, d
#define FABS(a, d) VPAND Y11, a, d
#define ROUNDEVEN(a, d) VROUNDPS $8, a, d
#define FLOOR(a, d) VROUNDPS $9, a, d
#define CEIL(a, d) VROUNDPS $10, a, d
#define TRUNC(a, d) VROUNDPS $11, a, d
#define FRACT(a, d) VROUNDPS $9, a, Y8; VSUBPS Y8, a, d
#define SQRT(a, d) VSQRTPS a, d

// Y12 is 1 on all lanes, Y11 -1, Y10 0.
#define SIGNS \
	MOVL $0x3F800000, AX; VMOVD AX, X12; VPBROADCASTD X12, Y12; \
	MOVL $0xBF800000, AX; VMOVD AX, X11; VPBROADCASTD X11, Y11; \
	VPXOR Y10, Y10, Y10
#define FSIGN(a, d) \
	VCMPPS $0x1E, Y10, a, Y8; VCMPPS $0x11, Y10, a, Y9; \
	VPAND Y12, Y8, Y8; VPAND Y11, Y9, Y9; VPOR Y8, Y9, d

TEXT ·fnegateAVX2(SB), NOSPLIT, $0-48
	SIGNBIT
	UNARY(FNEGATE)

TEXT ·fabsAVX2(SB), NOSPLIT, $0-48
	SIGNBIT
	UNARY(FABS)

TEXT ·roundEvenAVX2(SB), NOSPLIT, $0-48
	UNARY(ROUNDEVEN)

TEXT ·floorAVX2(SB), NOSPLIT, $0-48
	UNARY(FLOOR)

TEXT ·ceilAVX2(SB), NOSPLIT, $0-48
	UNARY(CEIL)

TEXT ·truncAVX2(SB), NOSPLIT, $0-48
	UNARY(TRUNC)

TEXT ·fractAVX2(SB), NOSPLIT, $0-48
	UNARY(FRACT)

TEXT ·sqrtAVX2(SB), NOSPLIT, $0-48
	UNARY(SQRT)

TEXT ·fsignAVX2(SB), NOSPLIT, $0-48
	SIGNS
	UNARY(FSIGN)

#define MULADD(c, b, a, d) VMULPS b, a, Y8; VADDPS c, Y8, d
#define FFMA(c, b, a, d) VMOVAPS a, d; VFMADD213PS c, b, d
#define FCLAMP(c, b, a, d) VMAXPS a, b, Y8; VMINPS Y8, c, d

// Y12 is 1 on all lanes: a*(1-c) + b*c.
#define FMIX(c, b, a, d) VSUBPS c, Y12, Y8; VMULPS Y8, a, Y8; VMULPS c, b, Y9; VADDPS Y9, Y8, d

TEXT ·mulAddAVX2(SB), NOSPLIT, $0-96
	TERNARY(MULADD)

TEXT ·ffmaAVX2(SB), NOSPLIT, $0-96
	TERNARY(FFMA)

TEXT ·fclampAVX2(SB), NOSPLIT, $0-96
	TERNARY(FCLAMP)

TEXT ·fmixAVX2(SB), NOSPLIT, $0-96
	SIGNS
	TERNARY(FMIX)

// Y13 is s.
#define MULADDS(c, a, d) VMULPS Y13, a, Y8; VADDPS c, Y8, d

TEXT ·mulAddSAVX2(SB), NOSPLIT, $0-80
	UNARYARGS
	MOVL s+48(FP), AX
	VMOVD AX, X13
	VPBROADCASTD X13, Y13
	MOVQ c_base+56(FP), DX
	LEN(c_len+64(FP))
	LOOP2(MULADDS)
