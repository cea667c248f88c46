#include "textflag.h"
#include "loops_amd64.h"

// The masks of LOOP's last lanes: r lanes from byte 32 - 4*r on.
DATA ·tails+0(SB)/8, $-1
DATA ·tails+8(SB)/8, $-1
DATA ·tails+16(SB)/8, $-1
DATA ·tails+24(SB)/8, $-1
DATA ·tails+32(SB)/8, $0
DATA ·tails+40(SB)/8, $0
DATA ·tails+48(SB)/8, $0
DATA ·tails+56(SB)/8, $0
GLOBL ·tails(SB), RODATA|NOPTR, $64

// b where a, else c.
#define SELECT(c, b, a, d) VPXOR c, b, Y8; VPAND a, Y8, Y8; VPXOR c, Y8, d

TEXT ·selectAVX2(SB), NOSPLIT, $0-96
	TERNARY(SELECT)

// Y13 where b, else a.
#define PUT(b, a, d) VPXOR Y13, a, Y8; VPAND b, Y8, Y8; VPXOR Y8, a, d

TEXT ·blendSAVX2(SB), NOSPLIT, $0-56
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ DI, SI
	MOVL s+24(FP), AX
	VMOVD AX, X13
	VPBROADCASTD X13, Y13
	MOVQ mask_base+32(FP), DX
	LEN(mask_len+40(FP))
	LOOP2(PUT)

TEXT ·splatAVX2(SB), NOSPLIT, $0-28
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVL s+24(FP), AX
	VMOVD AX, X0
	VPBROADCASTD X0, Y0
	SUBQ $32, CX
	JLT few
many:
	VMOVDQU Y0, (DI)
	VMOVDQU Y0, 32(DI)
	VMOVDQU Y0, 64(DI)
	VMOVDQU Y0, 96(DI)
	ADDQ $128, DI
	SUBQ $32, CX
	JGE many
few:
	ADDQ $24, CX
	JLT last
eight:
	VMOVDQU Y0, (DI)
	ADDQ $32, DI
	SUBQ $8, CX
	JGE eight
last:
	ADDQ $8, CX
	JEQ done
	TAILMASK
	VPMASKMOVD Y0, Y14, (DI)
done:
	VZEROUPPER
	RET

// func splitAVX2(yes, no, cond, mask []uint32) (anyYes, anyNo bool)
// Y10 and Y11 gather what was in yes and no.
TEXT ·splitAVX2(SB), NOSPLIT, $0-98
	MOVQ yes_base+0(FP), DI
	MOVQ yes_len+8(FP), CX
	MOVQ no_base+24(FP), R8
	LEN(no_len+32(FP))
	MOVQ cond_base+48(FP), SI
	LEN(cond_len+56(FP))
	MOVQ mask_base+72(FP), DX
	LEN(mask_len+80(FP))
	VPXOR Y10, Y10, Y10
	VPXOR Y11, Y11, Y11
	SUBQ $8, CX
	JLT last
eight:
	VMOVDQU (SI), Y0
	VMOVDQU (DX), Y1
	VPAND Y0, Y1, Y2
	VPANDN Y1, Y0, Y3
	VMOVDQU Y2, (DI)
	VMOVDQU Y3, (R8)
	VPOR Y2, Y10, Y10
	VPOR Y3, Y11, Y11
	ADDQ $32, SI
	ADDQ $32, DX
	ADDQ $32, DI
	ADDQ $32, R8
	SUBQ $8, CX
	JGE eight
last:
	ADDQ $8, CX
	JEQ done
	TAILMASK
	VPMASKMOVD (SI), Y14, Y0
	VPMASKMOVD (DX), Y14, Y1
	VPAND Y0, Y1, Y2
	VPANDN Y1, Y0, Y3
	VPMASKMOVD Y2, Y14, (DI)
	VPMASKMOVD Y3, Y14, (R8)
	VPOR Y2, Y10, Y10
	VPOR Y3, Y11, Y11
done:
	VPTEST Y10, Y10
	SETNE anyYes+96(FP)
	VPTEST Y11, Y11
	SETNE anyNo+97(FP)
	VZEROUPPER
	RET

// The first lane for which S leaves a negative Y0, or -1. M loads the operands of
// eight lanes at BX, T those of the last ones.
#define FIRST(M, T, S, result) \
	XORQ BX, BX; \
	SUBQ $8, CX; \
	JLT last; \
eight: \
	M; \
	S; \
	VMOVMSKPS Y0, AX; \
	TESTL AX, AX; \
	JNE found; \
	ADDQ $8, BX; \
	SUBQ $8, CX; \
	JGE eight; \
last: \
	ADDQ $8, CX; \
	JEQ none; \
	TAILMASK; \
	T; \
	S; \
	VPAND Y14, Y0, Y0; \
	VMOVMSKPS Y0, AX; \
	TESTL AX, AX; \
	JNE found; \
none: \
	MOVQ $-1, result; \
	VZEROUPPER; \
	RET; \
found: \
	BSFL AX, AX; \
	ADDQ BX, AX; \
	MOVQ AX, result; \
	VZEROUPPER; \
	RET

#define LOADA VMOVDQU (SI)(BX*4), Y0
#define LASTA VPMASKMOVD (SI)(BX*4), Y14, Y0
#define LOADAM VMOVDQU (SI)(BX*4), Y0; VMOVDQU (DX)(BX*4), Y1
#define LASTAM VPMASKMOVD (SI)(BX*4), Y14, Y0; VPMASKMOVD (DX)(BX*4), Y14, Y1

// Y12 is 0, Y11 all ones.
#define ISSET VPCMPEQD Y12, Y0, Y0; VPXOR Y11, Y0, Y0
#define ISZERO VPCMPEQD Y12, Y0, Y0
#define ISZEROON VPCMPEQD Y12, Y0, Y0; VPAND Y1, Y0, Y0

TEXT ·firstAVX2(SB), NOSPLIT, $0-32
	MOVQ mask_base+0(FP), SI
	MOVQ mask_len+8(FP), CX
	VPXOR Y12, Y12, Y12
	VPCMPEQD Y11, Y11, Y11
	FIRST(LOADA, LASTA, ISSET, ret+24(FP))

TEXT ·firstZeroAVX2(SB), NOSPLIT, $0-32
	MOVQ a_base+0(FP), SI
	MOVQ a_len+8(FP), CX
	VPXOR Y12, Y12, Y12
	FIRST(LOADA, LASTA, ISZERO, ret+24(FP))

TEXT ·firstZeroOnAVX2(SB), NOSPLIT, $0-56
	MOVQ a_base+0(FP), SI
	MOVQ a_len+8(FP), CX
	MOVQ mask_base+24(FP), DX
	LEN(mask_len+32(FP))
	VPXOR Y12, Y12, Y12
	FIRST(LOADAM, LASTAM, ISZEROON, ret+48(FP))

TEXT ·sameAVX2(SB), NOSPLIT, $0-25
	MOVQ a_base+0(FP), SI
	MOVQ a_len+8(FP), CX
	MOVB $1, ret+24(FP)
	TESTQ CX, CX
	JEQ done
	VPBROADCASTD (SI), Y1
	SUBQ $8, CX
	JLT last
eight:
	VPXOR (SI), Y1, Y0
	VPTEST Y0, Y0
	JNE differ
	ADDQ $32, SI
	SUBQ $8, CX
	JGE eight
last:
	ADDQ $8, CX
	JEQ done
	TAILMASK
	VPMASKMOVD (SI), Y14, Y0
	VPXOR Y0, Y1, Y0
	VPTEST Y14, Y0
	JEQ done
differ:
	MOVB $0, ret+24(FP)
done:
	VZEROUPPER
	RET
