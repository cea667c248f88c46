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

// 1/13! to 1/0!
DATA factorials<>+0(SB)/8, $0x3DE6124613A86D09
DATA factorials<>+8(SB)/8, $0x3E21EED8EFF8D898
DATA factorials<>+16(SB)/8, $0x3E5AE64567F544E4
DATA factorials<>+24(SB)/8, $0x3E927E4FB7789F5C
DATA factorials<>+32(SB)/8, $0x3EC71DE3A556C734
DATA factorials<>+40(SB)/8, $0x3EFA01A01A01A01A
DATA factorials<>+48(SB)/8, $0x3F2A01A01A01A01A
DATA factorials<>+56(SB)/8, $0x3F56C16C16C16C17
DATA factorials<>+64(SB)/8, $0x3F81111111111111
DATA factorials<>+72(SB)/8, $0x3FA5555555555555
DATA factorials<>+80(SB)/8, $0x3FC5555555555555
DATA factorials<>+88(SB)/8, $0x3FE0000000000000
DATA factorials<>+96(SB)/8, $0x3FF0000000000000
DATA factorials<>+104(SB)/8, $0x3FF0000000000000
GLOBL factorials<>(SB), RODATA|NOPTR, $112

// p = p*r + the factorial at off. c is scratch.
#define TERM(off, r, c, p) \
	VMULPD r, p, p; VBROADCASTSD factorials<>+off(SB), c; VADDPD c, p, p

// p = e^r, and t's lowest bits into the exponent.
#define REDUCED(r, t, c, p) \
	VBROADCASTSD factorials<>(SB), p; \
	TERM(8, r, c, p); \
	TERM(16, r, c, p); \
	TERM(24, r, c, p); \
	TERM(32, r, c, p); \
	TERM(40, r, c, p); \
	TERM(48, r, c, p); \
	TERM(56, r, c, p); \
	TERM(64, r, c, p); \
	TERM(72, r, c, p); \
	TERM(80, r, c, p); \
	TERM(88, r, c, p); \
	TERM(96, r, c, p); \
	TERM(104, r, c, p); \
	VPSLLQ $52, t, t; VPADDQ t, p, p

// MAXPD and MINPD give the second operand, the assembler's first, for a NaN: x.
#define EXP4(x, t, c, p) \
	VBROADCASTSD expLow<>(SB), c; VMAXPD x, c, x; \
	VBROADCASTSD expHigh<>(SB), c; VMINPD x, c, x; \
	VBROADCASTSD log2e<>(SB), c; VMULPD c, x, t; \
	VBROADCASTSD shifter<>(SB), c; VADDPD c, t, t; VSUBPD c, t, p; \
	VBROADCASTSD ln2Hi<>(SB), c; VMULPD c, p, c; VSUBPD c, x, x; \
	VBROADCASTSD ln2Lo<>(SB), c; VMULPD c, p, c; VSUBPD c, x, x; \
	REDUCED(x, t, c, p)

#define EXP24(x, t, c, p) \
	VBROADCASTSD exp2Low<>(SB), c; VMAXPD x, c, x; \
	VBROADCASTSD exp2High<>(SB), c; VMINPD x, c, x; \
	VBROADCASTSD shifter<>(SB), c; VADDPD c, x, t; VSUBPD c, t, p; \
	VSUBPD p, x, x; VBROADCASTSD ln2<>(SB), c; VMULPD c, x, x; \
	REDUCED(x, t, c, p)

// Eight lanes as two times four doubles, the work of which runs side by side.
#define AS4(OP, a, d) \
	VEXTRACTF128 $1, a, X4; VCVTPS2PD X4, Y4; \
	VEXTRACTF128 $0, a, X8; VCVTPS2PD X8, Y8; \
	OP(Y4, Y5, Y6, Y7); OP(Y8, Y9, Y10, Y11); \
	VCVTPD2PSY Y7, X7; VCVTPD2PSY Y11, X11; VINSERTF128 $1, X7, Y11, d

#define EXP(a, d) AS4(EXP4, a, d)
#define EXP2(a, d) AS4(EXP24, a, d)

TEXT ·expAVX2(SB), NOSPLIT, $0-48
	UNARY(EXP)

TEXT ·exp2AVX2(SB), NOSPLIT, $0-48
	UNARY(EXP2)

// 1/sqrt(x) in double, rounded.
#define INVERSESQRT4(x, t, c, p) \
	VSQRTPD x, x; VBROADCASTSD one<>(SB), c; VDIVPD x, c, p
#define INVERSESQRT(a, d) AS4(INVERSESQRT4, a, d)

TEXT ·inverseSqrtAVX2(SB), NOSPLIT, $0-48
	UNARY(INVERSESQRT)
