#include "textflag.h"
#include "loops_amd64.h"

DATA iota<>+0(SB)/8, $0x0000000100000000
DATA iota<>+8(SB)/8, $0x0000000300000002
DATA iota<>+16(SB)/8, $0x0000000500000004
DATA iota<>+24(SB)/8, $0x0000000700000006
GLOBL iota<>(SB), RODATA|NOPTR, $32

// Loads of client memory, which may fault at any of them. The frames
// are empty and no register is kept for the caller, so the runtime can make a
// panic of it at every instruction.

// Eight indices in Y0, all in range: most often they follow each other or are one
// and the same, and a load is several times faster than a gather. The words are in
// Y5; Y1 is a mask of all lanes, R9 the first index.
#define EIGHT(seq, same, have) \
	VPBROADCASTD X0, Y2; \
	VPSUBD Y2, Y0, Y3; \
	VMOVD X0, R9; \
	VPCMPEQD Y12, Y3, Y4; \
	VMOVMSKPS Y4, AX; \
	CMPL AX, $0xFF; \
	JEQ seq; \
	VPTEST Y3, Y3; \
	JEQ same; \
	VPXOR Y5, Y5, Y5; \
	VPGATHERDD Y1, (DX)(Y0*4), Y5; \
	JMP have; \
seq: \
	VMOVDQU (DX)(R9*4), Y5; \
	JMP have; \
same: \
	VPBROADCASTD (DX)(R9*4), Y5; \
have:

// func gather32AVX2(dst, idx []uint32, mem []byte) int
// mem has at least one word and at most 2^31: indices are signed to VPGATHERDD.
TEXT ·gather32AVX2(SB), NOSPLIT, $0-80
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ idx_base+24(FP), SI
	LEN(idx_len+32(FP))
	MOVQ mem_base+48(FP), DX
	MOVQ mem_len+56(FP), R8
	SHRQ $2, R8
	DECQ R8
	VMOVD R8, X13
	VPBROADCASTD X13, Y13
	VMOVDQU iota<>(SB), Y12
	SUBQ $8, CX
	JLT last
eight:
	VMOVDQU (SI), Y0
	VPMINUD Y13, Y0, Y1
	VPCMPEQD Y1, Y0, Y1
	VMOVMSKPS Y1, AX
	XORL $0xFF, AX
	JNE bad
	EIGHT(seq, same, have)
	VMOVDQU Y5, (DI)
	ADDQ $32, SI
	ADDQ $32, DI
	SUBQ $8, CX
	JGE eight
last:
	ADDQ $8, CX
	JEQ done
	TAILMASK
	VPMASKMOVD (SI), Y14, Y0
	VPMINUD Y13, Y0, Y1
	VPCMPEQD Y1, Y0, Y1
	VMOVMSKPS Y1, AX
	XORL $0xFF, AX
	JNE bad
	VMOVDQA Y14, Y1
	VPXOR Y5, Y5, Y5
	VPGATHERDD Y1, (DX)(Y0*4), Y5
	VPMASKMOVD Y5, Y14, (DI)
done:
	MOVQ $-1, ret+72(FP)
	VZEROUPPER
	RET
bad:
	BSFL AX, AX
	SUBQ idx_base+24(FP), SI
	SHRQ $2, SI
	ADDQ SI, AX
	MOVQ AX, ret+72(FP)
	VZEROUPPER
	RET

// func gatherMaskAVX2(dst, idx, mask []uint32, mem []byte) int
TEXT ·gatherMaskAVX2(SB), NOSPLIT, $0-104
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ idx_base+24(FP), SI
	LEN(idx_len+32(FP))
	MOVQ mask_base+48(FP), R11
	LEN(mask_len+56(FP))
	MOVQ mem_base+72(FP), DX
	MOVQ mem_len+80(FP), R8
	SHRQ $2, R8
	DECQ R8
	VMOVD R8, X13
	VPBROADCASTD X13, Y13
	VMOVDQU iota<>(SB), Y12
	SUBQ $8, CX
	JLT last
eight:
	VMOVDQU (R11), Y6
	VMOVMSKPS Y6, R10
	TESTL R10, R10
	JEQ next
	VMOVDQU (SI), Y0
	VPMINUD Y13, Y0, Y1
	VPCMPEQD Y1, Y0, Y1
	VPANDN Y6, Y1, Y2
	VMOVMSKPS Y2, AX
	TESTL AX, AX
	JNE bad
	CMPL R10, $0xFF
	JNE some
	EIGHT(seq, same, have)
	VMOVDQU Y5, (DI)
next:
	ADDQ $32, SI
	ADDQ $32, R11
	ADDQ $32, DI
	SUBQ $8, CX
	JGE eight
	JMP last
some:
	VMOVDQU (DI), Y5
	VPGATHERDD Y6, (DX)(Y0*4), Y5
	VMOVDQU Y5, (DI)
	JMP next
last:
	ADDQ $8, CX
	JEQ done
	TAILMASK
	VPMASKMOVD (R11), Y14, Y6
	VPMASKMOVD (SI), Y14, Y0
	VPMINUD Y13, Y0, Y1
	VPCMPEQD Y1, Y0, Y1
	VPANDN Y6, Y1, Y2
	VMOVMSKPS Y2, AX
	TESTL AX, AX
	JNE bad
	VPMASKMOVD (DI), Y14, Y5
	VPGATHERDD Y6, (DX)(Y0*4), Y5
	VPMASKMOVD Y5, Y14, (DI)
done:
	MOVQ $-1, ret+96(FP)
	VZEROUPPER
	RET
bad:
	BSFL AX, AX
	SUBQ idx_base+24(FP), SI
	SHRQ $2, SI
	ADDQ SI, AX
	MOVQ AX, ret+96(FP)
	VZEROUPPER
	RET
