#include "textflag.h"
#include "floats_amd64.h"
#include "rows512_amd64.h"
#include "large512_amd64.h"

// As dot16Q4KAVX512 and its expansion, of iq4_xs.

// The shifts of eight scales of iq4_xs: of their lower four bits, and of their upper two.
DATA ·xsLow+0(SB)/8, $0x0000000400000000
DATA ·xsLow+8(SB)/8, $0x0000000c00000008
DATA ·xsLow+16(SB)/8, $0x0000001400000010
DATA ·xsLow+24(SB)/8, $0x0000001c00000018
GLOBL ·xsLow(SB), RODATA|NOPTR, $32

DATA ·xsHigh+0(SB)/8, $0x0000000200000000
DATA ·xsHigh+8(SB)/8, $0x0000000600000004
DATA ·xsHigh+16(SB)/8, $0x0000000a00000008
DATA ·xsHigh+24(SB)/8, $0x0000000e0000000c
GLOBL ·xsHigh(SB), RODATA|NOPTR, $32

// XSCALES unpacks the eight scales of a block of iq4_xs of a row, at R15, to R14. Y13 to Y15
// have 15, 3 and 32.
#define XSCALES \
	VPBROADCASTD 4(R15), Y6             \
	VPBROADCASTW 2(R15), X7             \
	VPMOVZXWD    X7, Y7                 \
	VPSRLVD      ·xsLow(SB), Y6, Y6     \
	VPSRLVD      ·xsHigh(SB), Y7, Y7    \
	VPAND        Y13, Y6, Y6            \
	VPAND        Y14, Y7, Y7            \
	VPSLLD       $4, Y7, Y7             \
	VPOR         Y7, Y6, Y6             \
	VPSUBD       Y15, Y6, Y6            \
	VCVTDQ2PS    Y6, Y6                 \
	VPBROADCASTW (R15), X7              \
	VCVTPH2PS    X7, Y7                 \
	VMULPS       Y7, Y6, Y6             \
	VMOVUPS      Y6, (R14)

#define XSMASKS \
	MOVL         $15, AX \
	VPBROADCASTD AX, Y13 \
	MOVL         $3, AX  \
	VPBROADCASTD AX, Y14 \
	MOVL         $32, AX \
	VPBROADCASTD AX, Y15

// XS does 64 columns: of 32 and 32, each in the lower halves of sixteen bytes, then in the
// upper ones. Z5 has the levels.
#define XS(m, n, acc, OUT) \
	VMULPS.BCST (n)(R14), Z5, Z6   \
	VMULPS.BCST (n+4)(R14), Z5, Z7 \
	VPMOVZXBD   m, Z8              \
	VPMOVZXBD   16 m, Z10          \
	VPSRLD      $4, Z8, Z9         \
	VPSRLD      $4, Z10, Z11       \
	VPERMPS     Z6, Z8, Z8         \
	VPERMPS     Z6, Z9, Z9         \
	VPERMPS     Z7, Z10, Z10       \
	VPERMPS     Z7, Z11, Z11       \
	OUT(0, Z8, acc)                \
	OUT(64, Z9, acc)               \
	OUT(128, Z10, acc)             \
	OUT(192, Z11, acc)

#define XSROW(m, n, acc) \
	AHEAD(m) \
	XS(m, n, acc, TIMESX)

// func dot16IQ4XSAVX512(y *float32, w *byte, x, scratch *float32, cols, groups, stride, add int)
TEXT ·dot16IQ4XSAVX512(SB), NOSPLIT, $0-64
	FLUSH
	MOVQ    y+0(FP), DI
	MOVQ    w+8(FP), SI
	MOVQ    scratch+24(FP), R14
	MOVQ    groups+40(FP), BX
	MOVQ    stride+48(FP), R12
	LEAQ    (R12)(R12*2), R13
	FOLDMASKS
	XSMASKS
	VMOVUPS ·iqTable(SB), Z5

group:
	ROWSAT(SI)
	CLEAR16
	MOVQ x+16(FP), DX
	MOVQ cols+32(FP), CX
	SHRQ $8, CX

block:
	MOVQ R8, R15
	MOVQ $16, AX

scales:
	XSCALES
	ADDQ $64, R14
	ADDQ R12, R15
	DECQ AX
	JNZ  scales
	SUBQ $1024, R14
	STEPROWS($8)
	MOVQ $4, AX

chunk:
	ROWS16AT(XSROW)
	ADDQ    $256, DX
	STEPROWS($32)
	ADDQ    $8, R14
	DECQ    AX
	JNZ     chunk
	SUBQ    $32, R14
	DECQ    CX
	JNZ     block
	PUT16(add+56(FP))
	DECQ    BX
	JNZ     group
	VZEROUPPER
	KEEP
	RET

// func expandIQ4XSAVX512(dst *float32, w *byte, scratch *float32, blocks int)
TEXT ·expandIQ4XSAVX512(SB), NOSPLIT, $0-32
	FLUSH
	MOVQ    dst+0(FP), DX
	MOVQ    w+8(FP), R15
	MOVQ    scratch+16(FP), R14
	MOVQ    blocks+24(FP), CX
	VMOVUPS ·iqTable(SB), Z5
	XSMASKS

block:
	XSCALES
	ADDQ $8, R15
	MOVQ $4, AX

chunk:
	XS((R15), 0, Z0, STORED)
	ADDQ $256, DX
	ADDQ $32, R15
	ADDQ $8, R14
	DECQ AX
	JNZ  chunk
	SUBQ $32, R14
	DECQ CX
	JNZ  block
	VZEROUPPER
	KEEP
	RET
