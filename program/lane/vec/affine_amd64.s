#include "textflag.h"
#include "loops_amd64.h"

// DI is the register file, R12 what is left of it; SI the row in memory, R8 the
// step to the next, R9 the words of a row. R11 and Y14 are the rest of a row that
// is less than 8 words.
#define ROWS \
	MOVQ R9, R11; \
	ANDQ $7, R11; \
	LEAQ ·tails+32(SB), AX; \
	MOVQ R11, CX; \
	SHLQ $2, CX; \
	SUBQ CX, AX; \
	VMOVDQU (AX), Y14; \
	TESTQ R12, R12; \
	JLE done

// func copyRowsAVX2(dst []uint32, mem []byte, at, step, w int)
TEXT ·copyRowsAVX2(SB), NOSPLIT, $0-72
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), R12
	MOVQ mem_base+24(FP), SI
	ADDQ at+48(FP), SI
	MOVQ step+56(FP), R8
	MOVQ w+64(FP), R9
	CMPQ R9, $16
	JEQ narrow
	ROWS
row:
	MOVQ SI, BX
	MOVQ R9, CX
	SUBQ $16, CX
	JLT few
many:
	VMOVDQU (BX), Y0
	VMOVDQU 32(BX), Y1
	VMOVDQU Y0, (DI)
	VMOVDQU Y1, 32(DI)
	ADDQ $64, BX
	ADDQ $64, DI
	SUBQ $16, CX
	JGE many
few:
	ADDQ $8, CX
	JLT rest
	VMOVDQU (BX), Y0
	VMOVDQU Y0, (DI)
	ADDQ $32, BX
	ADDQ $32, DI
rest:
	TESTQ R11, R11
	JEQ next
	VPMASKMOVD (BX), Y14, Y0
	VPMASKMOVD Y0, Y14, (DI)
	LEAQ (DI)(R11*4), DI
next:
	ADDQ R8, SI
	SUBQ R9, R12
	JGT row
done:
	VZEROUPPER
	RET
narrow: // rows of 16, the usual block of two dimensions
	SUBQ $16, R12
	JLT done
	VMOVDQU (SI), Y0
	VMOVDQU 32(SI), Y1
	VMOVDQU Y0, (DI)
	VMOVDQU Y1, 32(DI)
	ADDQ R8, SI
	ADDQ $64, DI
	JMP narrow

// func uncopyRowsAVX2(mem []byte, at, step, w int, src []uint32)
TEXT ·uncopyRowsAVX2(SB), NOSPLIT, $0-72
	MOVQ mem_base+0(FP), SI
	ADDQ at+24(FP), SI
	MOVQ step+32(FP), R8
	MOVQ w+40(FP), R9
	MOVQ src_base+48(FP), DI
	MOVQ src_len+56(FP), R12
	CMPQ R9, $16
	JEQ narrow
	ROWS
row:
	MOVQ SI, BX
	MOVQ R9, CX
	SUBQ $16, CX
	JLT few
many:
	VMOVDQU (DI), Y0
	VMOVDQU 32(DI), Y1
	VMOVDQU Y0, (BX)
	VMOVDQU Y1, 32(BX)
	ADDQ $64, BX
	ADDQ $64, DI
	SUBQ $16, CX
	JGE many
few:
	ADDQ $8, CX
	JLT rest
	VMOVDQU (DI), Y0
	VMOVDQU Y0, (BX)
	ADDQ $32, BX
	ADDQ $32, DI
rest:
	TESTQ R11, R11
	JEQ next
	VPMASKMOVD (DI), Y14, Y0
	VPMASKMOVD Y0, Y14, (BX)
	LEAQ (DI)(R11*4), DI
next:
	ADDQ R8, SI
	SUBQ R9, R12
	JGT row
done:
	VZEROUPPER
	RET
narrow: // rows of 16
	SUBQ $16, R12
	JLT done
	VMOVDQU (DI), Y0
	VMOVDQU 32(DI), Y1
	VMOVDQU Y0, (SI)
	VMOVDQU Y1, 32(SI)
	ADDQ R8, SI
	ADDQ $64, DI
	JMP narrow

// func splatRowsAVX2(dst []uint32, mem []byte, at, step, w int)
TEXT ·splatRowsAVX2(SB), NOSPLIT, $0-72
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), R12
	MOVQ mem_base+24(FP), SI
	ADDQ at+48(FP), SI
	MOVQ step+56(FP), R8
	MOVQ w+64(FP), R9
	CMPQ R9, $16
	JEQ narrow
	ROWS
row:
	VPBROADCASTD (SI), Y0
	MOVQ R9, CX
	SUBQ $16, CX
	JLT few
many:
	VMOVDQU Y0, (DI)
	VMOVDQU Y0, 32(DI)
	ADDQ $64, DI
	SUBQ $16, CX
	JGE many
few:
	ADDQ $8, CX
	JLT rest
	VMOVDQU Y0, (DI)
	ADDQ $32, DI
rest:
	TESTQ R11, R11
	JEQ next
	VPMASKMOVD Y0, Y14, (DI)
	LEAQ (DI)(R11*4), DI
next:
	ADDQ R8, SI
	SUBQ R9, R12
	JGT row
done:
	VZEROUPPER
	RET
narrow: // rows of 16
	SUBQ $16, R12
	JLT done
	VPBROADCASTD (SI), Y0
	VMOVDQU Y0, (DI)
	VMOVDQU Y0, 32(DI)
	ADDQ R8, SI
	ADDQ $64, DI
	JMP narrow

DATA counting<>+0(SB)/8, $0x0000000100000000
DATA counting<>+8(SB)/8, $0x0000000300000002
DATA counting<>+16(SB)/8, $0x0000000500000004
DATA counting<>+24(SB)/8, $0x0000000700000006
GLOBL counting<>(SB), RODATA|NOPTR, $32

// func gatherRowsAVX2(dst []uint32, mem []byte, at, x, step, w int, shift, keep uint32)
// Y12 has the bytes from one lane to each of eight.
//
// A loop along rows of a matrix, one row per lane, comes to the next cache line of
// every lane at once, and the processor follows no more than some tens of such
// streams. So where a line begins, the one after it is asked for. That is a hint: it
// reads nothing, and does not fault.
#define AHEAD PREFETCHT1 64(AX); ADDQ R13, AX

TEXT ·gatherRowsAVX2(SB), NOSPLIT, $0-88
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), R12
	MOVQ mem_base+24(FP), SI
	ADDQ at+48(FP), SI
	MOVQ x+56(FP), R10
	VMOVD R10, X12
	VPBROADCASTD X12, Y12
	VPMULLD counting<>(SB), Y12, Y12
	MOVQ R10, R13
	SHLQ $3, R10
	MOVQ step+64(FP), R8
	MOVQ w+72(FP), R9
	MOVL shift+80(FP), AX
	VMOVD AX, X10
	MOVL keep+84(FP), AX
	VMOVD AX, X11
	VPBROADCASTD X11, Y11
	ROWS
row:
	MOVQ SI, BX
	MOVQ R9, CX
	SUBQ $8, CX
	JLT rest
eight:
	TESTQ $0x3C, BX
	JEQ ahead
here:
	VPCMPEQD Y1, Y1, Y1
	VPXOR Y0, Y0, Y0
	VPGATHERDD Y1, (BX)(Y12*1), Y0
	VPSRLD X10, Y0, Y0
	VPAND Y11, Y0, Y0
	VMOVDQU Y0, (DI)
	ADDQ R10, BX
	ADDQ $32, DI
	SUBQ $8, CX
	JGE eight
rest:
	TESTQ R11, R11
	JEQ next
	VMOVDQA Y14, Y1
	VPXOR Y0, Y0, Y0
	VPGATHERDD Y1, (BX)(Y12*1), Y0
	VPSRLD X10, Y0, Y0
	VPAND Y11, Y0, Y0
	VPMASKMOVD Y0, Y14, (DI)
	LEAQ (DI)(R11*4), DI
next:
	ADDQ R8, SI
	SUBQ R9, R12
	JGT row
done:
	VZEROUPPER
	RET
ahead:
	MOVQ BX, AX
	AHEAD
	AHEAD
	AHEAD
	AHEAD
	AHEAD
	AHEAD
	AHEAD
	AHEAD
	JMP here

// func mulAddRowsAVX2(dst, c []uint32, p []byte, pAt, pStep int, q []byte, qAt, qStep, w int)
// One word of p for each row times the words of q, rounded, and c added. w is a
// multiple of 8.
TEXT ·mulAddRowsAVX2(SB), NOSPLIT, $0-136
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), R12
	MOVQ c_base+24(FP), DX
	MOVQ p_base+48(FP), SI
	ADDQ pAt+72(FP), SI
	MOVQ pStep+80(FP), R8
	MOVQ q_base+88(FP), R10
	ADDQ qAt+112(FP), R10
	MOVQ qStep+120(FP), R11
	MOVQ w+128(FP), R9
	CMPQ R9, $16
	JEQ narrow
	TESTQ R12, R12
	JLE done
row:
	VBROADCASTSS (SI), Y2
	MOVQ R10, BX
	MOVQ R9, CX
	SUBQ $16, CX
	JLT few
many:
	VMULPS (BX), Y2, Y0
	VMULPS 32(BX), Y2, Y1
	VADDPS (DX), Y0, Y0
	VADDPS 32(DX), Y1, Y1
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	ADDQ $64, BX
	ADDQ $64, DX
	ADDQ $64, DI
	SUBQ $16, CX
	JGE many
few:
	ADDQ $8, CX
	JLT next
	VMULPS (BX), Y2, Y0
	VADDPS (DX), Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ $32, DX
	ADDQ $32, DI
next:
	ADDQ R8, SI
	ADDQ R11, R10
	SUBQ R9, R12
	JGT row
done:
	VZEROUPPER
	RET
narrow: // rows of 16
	SUBQ $16, R12
	JLT done
	VBROADCASTSS (SI), Y2
	VMULPS (R10), Y2, Y0
	VMULPS 32(R10), Y2, Y1
	VADDPS (DX), Y0, Y0
	VADDPS 32(DX), Y1, Y1
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	ADDQ R8, SI
	ADDQ R11, R10
	ADDQ $64, DX
	ADDQ $64, DI
	JMP narrow

// func uncopyRowsMaskAVX2(mem []byte, at, step, w int, src, mask []uint32)
// Lanes off the mask are not touched. R10 is the mask, as DI is the lanes.
TEXT ·uncopyRowsMaskAVX2(SB), NOSPLIT, $0-96
	MOVQ mem_base+0(FP), SI
	ADDQ at+24(FP), SI
	MOVQ step+32(FP), R8
	MOVQ w+40(FP), R9
	MOVQ src_base+48(FP), DI
	MOVQ src_len+56(FP), R12
	MOVQ mask_base+72(FP), R10
	ROWS
row:
	MOVQ SI, BX
	MOVQ R9, CX
	SUBQ $8, CX
	JLT rest
eight:
	VMOVDQU (R10), Y1
	VPTEST Y1, Y1
	JEQ none
	VMOVDQU (DI), Y0
	VPMASKMOVD Y0, Y1, (BX)
none:
	ADDQ $32, BX
	ADDQ $32, DI
	ADDQ $32, R10
	SUBQ $8, CX
	JGE eight
rest:
	TESTQ R11, R11
	JEQ next
	VPMASKMOVD (R10), Y14, Y1
	VPMASKMOVD (DI), Y14, Y0
	VPMASKMOVD Y0, Y1, (BX)
	LEAQ (DI)(R11*4), DI
	LEAQ (R10)(R11*4), R10
next:
	ADDQ R8, SI
	SUBQ R9, R12
	JGT row
done:
	VZEROUPPER
	RET
