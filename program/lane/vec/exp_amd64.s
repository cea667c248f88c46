#include "textflag.h"
#include "loops_amd64.h"

// The constants of exp.go.
DATA expLow<>(SB)/8, $0xC05B800000000000
GLOBL expLow<>(SB), RODATA|NOPTR, $8
DATA expHigh<>(SB)/8, $0x4056800000000000
GLOBL expHigh<>(SB), RODATA|NOPTR, $8
DATA exp2Low<>(SB)/8, $0xC064000000000000
GLOBL exp2Low<>(SB), RODATA|NOPTR, $8
DATA exp2High<>(SB)/8, $0x4060400000000000
GLOBL exp2High<>(SB), RODATA|NOPTR, $8
DATA log2e<>(SB)/8, $0x3FF71547652B82FE
GLOBL log2e<>(SB), RODATA|NOPTR, $8
DATA ln2<>(SB)/8, $0x3FE62E42FEFA39EF
GLOBL ln2<>(SB), RODATA|NOPTR, $8
DATA shifter<>(SB)/8, $0x4338000000000000
GLOBL shifter<>(SB), RODATA|NOPTR, $8
DATA ln2Hi<>(SB)/8, $0x3FE62E42FEE00000
GLOBL ln2Hi<>(SB), RODATA|NOPTR, $8
DATA ln2Lo<>(SB)/8, $0x3DEA39EF35793C76
GLOBL ln2Lo<>(SB), RODATA|NOPTR, $8
DATA one<>(SB)/8, $0x3FF0000000000000
GLOBL one<>(SB), RODATA|NOPTR, $8

// 1/0! to 1/13!
DATA factorials<>+0(SB)/8, $0x3FF0000000000000
DATA factorials<>+8(SB)/8, $0x3FF0000000000000
DATA factorials<>+16(SB)/8, $0x3FE0000000000000
DATA factorials<>+24(SB)/8, $0x3FC5555555555555
DATA factorials<>+32(SB)/8, $0x3FA5555555555555
DATA factorials<>+40(SB)/8, $0x3F81111111111111
DATA factorials<>+48(SB)/8, $0x3F56C16C16C16C17
DATA factorials<>+56(SB)/8, $0x3F2A01A01A01A01A
DATA factorials<>+64(SB)/8, $0x3EFA01A01A01A01A
DATA factorials<>+72(SB)/8, $0x3EC71DE3A556C734
DATA factorials<>+80(SB)/8, $0x3E927E4FB7789F5C
DATA factorials<>+88(SB)/8, $0x3E5AE64567F544E4
DATA factorials<>+96(SB)/8, $0x3E21EED8EFF8D898
DATA factorials<>+104(SB)/8, $0x3DE6124613A86D09
GLOBL factorials<>(SB), RODATA|NOPTR, $112

// p = the factorial at even + the next one times r. c is scratch.
#define PAIR(even, odd, r, c, p) \
	VBROADCASTSD factorials<>+odd(SB), p; VMULPD r, p, p; \
	VBROADCASTSD factorials<>+even(SB), c; VADDPD c, p, p

// p = p + q*by
#define ADDTIMES(by, q, p) VMULPD by, q, q; VADDPD q, p, p

// p = e^r as in exp.go, and t's lowest bits into the exponent. r2, r4, r8, q and u
// are scratch.
#define REDUCED(r, t, c, q, u, r2, r4, r8, p) \
	VMULPD r, r, r2; VMULPD r2, r2, r4; VMULPD r4, r4, r8; \
	PAIR(0, 8, r, c, p); PAIR(16, 24, r, c, q); ADDTIMES(r2, q, p); \
	PAIR(32, 40, r, c, q); PAIR(48, 56, r, c, u); ADDTIMES(r2, u, q); ADDTIMES(r4, q, p); \
	PAIR(64, 72, r, c, q); PAIR(80, 88, r, c, u); ADDTIMES(r2, u, q); \
	PAIR(96, 104, r, c, u); ADDTIMES(r4, u, q); ADDTIMES(r8, q, p); \
	VPSLLQ $52, t, t; VPADDQ t, p, p

// MAXPD and MINPD give the second operand, the assembler's first, for a NaN: x.
// Y5 is t, Y6 the constant at hand.
#define EXP4(x, p) \
	VBROADCASTSD expLow<>(SB), Y6; VMAXPD x, Y6, x; \
	VBROADCASTSD expHigh<>(SB), Y6; VMINPD x, Y6, x; \
	VBROADCASTSD log2e<>(SB), Y6; VMULPD Y6, x, Y5; \
	VBROADCASTSD shifter<>(SB), Y6; VADDPD Y6, Y5, Y5; VSUBPD Y6, Y5, p; \
	VBROADCASTSD ln2Hi<>(SB), Y6; VMULPD Y6, p, Y6; VSUBPD Y6, x, x; \
	VBROADCASTSD ln2Lo<>(SB), Y6; VMULPD Y6, p, Y6; VSUBPD Y6, x, x; \
	REDUCED(x, Y5, Y6, Y8, Y9, Y10, Y11, Y12, p)

#define EXP24(x, p) \
	VBROADCASTSD exp2Low<>(SB), Y6; VMAXPD x, Y6, x; \
	VBROADCASTSD exp2High<>(SB), Y6; VMINPD x, Y6, x; \
	VBROADCASTSD shifter<>(SB), Y6; VADDPD Y6, x, Y5; VSUBPD Y6, Y5, p; \
	VSUBPD p, x, x; VBROADCASTSD ln2<>(SB), Y6; VMULPD Y6, x, x; \
	REDUCED(x, Y5, Y6, Y8, Y9, Y10, Y11, Y12, p)

// Eight lanes as two times four doubles: OP from Y4 to Y7 or Y13.
#define AS4(OP, a, d) \
	VEXTRACTF128 $1, a, X4; VCVTPS2PD X4, Y4; OP(Y4, Y7); \
	VEXTRACTF128 $0, a, X4; VCVTPS2PD X4, Y4; OP(Y4, Y13); \
	VCVTPD2PSY Y7, X7; VCVTPD2PSY Y13, X13; VINSERTF128 $1, X7, Y13, d

#define EXP(a, d) AS4(EXP4, a, d)
#define EXP2(a, d) AS4(EXP24, a, d)

TEXT ·expAVX2(SB), NOSPLIT, $0-48
	UNARY(EXP)

TEXT ·exp2AVX2(SB), NOSPLIT, $0-48
	UNARY(EXP2)

// 1/sqrt(x) in double, rounded.
#define INVERSESQRT4(x, p) \
	VSQRTPD x, x; VBROADCASTSD one<>(SB), Y6; VDIVPD x, Y6, p
#define INVERSESQRT(a, d) AS4(INVERSESQRT4, a, d)

TEXT ·inverseSqrtAVX2(SB), NOSPLIT, $0-48
	UNARY(INVERSESQRT)
