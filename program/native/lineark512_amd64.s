#include "textflag.h"
#include "floats_amd64.h"
#include "rows512_amd64.h"
#include "large512_amd64.h"

// As dot16Q8AVX512, of q4_k, q5_k and q6_k, and their expansions: blocks of 256 columns, with a scale for each
// 32 or 16 of them that is itself packed. The scales of a block of each of the sixteen rows
// are unpacked first, to a scratch of 64 bytes for each row, at R14.

// 0 to 31 as f32.
DATA ·digits+0(SB)/8, $0x3f80000000000000
DATA ·digits+8(SB)/8, $0x4040000040000000
DATA ·digits+16(SB)/8, $0x40a0000040800000
DATA ·digits+24(SB)/8, $0x40e0000040c00000
DATA ·digits+32(SB)/8, $0x4110000041000000
DATA ·digits+40(SB)/8, $0x4130000041200000
DATA ·digits+48(SB)/8, $0x4150000041400000
DATA ·digits+56(SB)/8, $0x4170000041600000
DATA ·digits+64(SB)/8, $0x4188000041800000
DATA ·digits+72(SB)/8, $0x4198000041900000
DATA ·digits+80(SB)/8, $0x41a8000041a00000
DATA ·digits+88(SB)/8, $0x41b8000041b00000
DATA ·digits+96(SB)/8, $0x41c8000041c00000
DATA ·digits+104(SB)/8, $0x41d8000041d00000
DATA ·digits+112(SB)/8, $0x41e8000041e00000
DATA ·digits+120(SB)/8, $0x41f8000041f00000
GLOBL ·digits(SB), RODATA|NOPTR, $128

// -16 to 15: the values of five bits of q5_0.
DATA ·fivesBelow+0(SB)/8, $0xc1700000c1800000
DATA ·fivesBelow+8(SB)/8, $0xc1500000c1600000
DATA ·fivesBelow+16(SB)/8, $0xc1300000c1400000
DATA ·fivesBelow+24(SB)/8, $0xc1100000c1200000
DATA ·fivesBelow+32(SB)/8, $0xc0e00000c1000000
DATA ·fivesBelow+40(SB)/8, $0xc0a00000c0c00000
DATA ·fivesBelow+48(SB)/8, $0xc0400000c0800000
DATA ·fivesBelow+56(SB)/8, $0xbf800000c0000000
DATA ·fivesBelow+64(SB)/8, $0x3f80000000000000
DATA ·fivesBelow+72(SB)/8, $0x4040000040000000
DATA ·fivesBelow+80(SB)/8, $0x40a0000040800000
DATA ·fivesBelow+88(SB)/8, $0x40e0000040c00000
DATA ·fivesBelow+96(SB)/8, $0x4110000041000000
DATA ·fivesBelow+104(SB)/8, $0x4130000041200000
DATA ·fivesBelow+112(SB)/8, $0x4150000041400000
DATA ·fivesBelow+120(SB)/8, $0x4170000041600000
GLOBL ·fivesBelow(SB), RODATA|NOPTR, $128

// The levels of iq4_nl.
DATA ·iqTable+0(SB)/8, $0xc2d00000c2fe0000
DATA ·iqTable+8(SB)/8, $0xc2820000c2a60000
DATA ·iqTable+16(SB)/8, $0xc20c0000c2440000
DATA ·iqTable+24(SB)/8, $0xc1200000c1b00000
DATA ·iqTable+32(SB)/8, $0x415000003f800000
DATA ·iqTable+40(SB)/8, $0x4218000041c80000
DATA ·iqTable+48(SB)/8, $0x428a000042540000
DATA ·iqTable+56(SB)/8, $0x42e2000042b20000
GLOBL ·iqTable(SB), RODATA|NOPTR, $64

// How the words of sixes are shifted, and the masks of their lower and upper parts.
DATA ·sixShift+0(SB)/8, $0x0000000000000000
DATA ·sixShift+8(SB)/8, $0x0000000400000000
GLOBL ·sixShift(SB), RODATA|NOPTR, $16

DATA ·sixLow+0(SB)/8, $0x0f0f0f0f3f3f3f3f
DATA ·sixLow+8(SB)/8, $0x0f0f0f0f3f3f3f3f
GLOBL ·sixLow(SB), RODATA|NOPTR, $16

DATA ·sixHigh+0(SB)/8, $0x3030303000000000
DATA ·sixHigh+8(SB)/8, $0x3030303000000000
GLOBL ·sixHigh(SB), RODATA|NOPTR, $16

// Which of two halves is a scale's factor, and the sign of that of offsets.
DATA ·sixWhich+0(SB)/8, $0x0000000000000000
DATA ·sixWhich+8(SB)/8, $0x0000000000000000
DATA ·sixWhich+16(SB)/8, $0x0000000000000000
DATA ·sixWhich+24(SB)/8, $0x0000000000000000
DATA ·sixWhich+32(SB)/8, $0x0000000100000001
DATA ·sixWhich+40(SB)/8, $0x0000000100000001
DATA ·sixWhich+48(SB)/8, $0x0000000100000001
DATA ·sixWhich+56(SB)/8, $0x0000000100000001
GLOBL ·sixWhich(SB), RODATA|NOPTR, $64

DATA ·sixSign+0(SB)/8, $0x0000000000000000
DATA ·sixSign+8(SB)/8, $0x0000000000000000
DATA ·sixSign+16(SB)/8, $0x0000000000000000
DATA ·sixSign+24(SB)/8, $0x0000000000000000
DATA ·sixSign+32(SB)/8, $0x8000000080000000
DATA ·sixSign+40(SB)/8, $0x8000000080000000
DATA ·sixSign+48(SB)/8, $0x8000000080000000
DATA ·sixSign+56(SB)/8, $0x8000000080000000
GLOBL ·sixSign(SB), RODATA|NOPTR, $64

// SIXES unpacks the scales of a block of q4_k or q5_k of a row, at R15, to R14: eight scales
// and eight offsets. The twelve bytes have six bits of each of the first four of both, and
// four of each of the others, with two more in the tops of the first: see q4_k.glsl.
#define SIXES \
	VMOVDQU    (R15), X6             \
	VPSHUFD    $0xed, X6, X7         \
	VPSRLVD    ·sixShift(SB), X7, X7 \
	VPAND      ·sixLow(SB), X7, X7   \
	VPSHUFD    $0xa5, X6, X8         \
	VPSRLD     $2, X8, X8            \
	VPAND      ·sixHigh(SB), X8, X8  \
	VPOR       X8, X7, X7            \
	VPMOVZXBD  X7, Z7                \
	VCVTDQ2PS  Z7, Z7                \
	VCVTPH2PS  X6, X6                \
	VMOVDQU32  ·sixWhich(SB), Z8     \
	VPERMPS    Z6, Z8, Z6            \
	VPXORD     ·sixSign(SB), Z6, Z6  \
	VMULPS     Z6, Z7, Z7            \
	VMOVUPS    Z7, (R14)

// K4 does 64 columns: the lower halves of 32 bytes, then the upper ones. Z5 has the digits; a table has the sixteen values of a half, and the index of
// VPERMPS is its lowest four bits.
#define K4(m, n, acc, OUT) \
	VBROADCASTSS     (n)(R14), Z6          \
	VBROADCASTSS     (n+4)(R14), Z7        \
	VPMOVZXBD        m, Z8                 \
	VPMOVZXBD        16 m, Z9              \
	VFMADD213PS.BCST (n+32)(R14), Z5, Z6   \
	VFMADD213PS.BCST (n+36)(R14), Z5, Z7   \
	VPERMPS          Z6, Z8, Z10           \
	VPERMPS          Z6, Z9, Z11           \
	VPSRLD           $4, Z8, Z8            \
	VPSRLD           $4, Z9, Z9            \
	OUT(0, Z10, acc)                       \
	OUT(64, Z11, acc)                      \
	VPERMPS          Z7, Z8, Z8            \
	VPERMPS          Z7, Z9, Z9            \
	OUT(128, Z8, acc)                      \
	OUT(192, Z9, acc)

#define K4ROW(m, n, acc) \
	AHEAD(m) \
	K4(m, n, acc, TIMESX)

// func dot16Q4KAVX512(y *float32, w *byte, x, scratch *float32, cols, groups, stride, add int)
TEXT ·dot16Q4KAVX512(SB), NOSPLIT, $0-64
	FLUSH
	MOVQ    y+0(FP), DI
	MOVQ    w+8(FP), SI
	MOVQ    scratch+24(FP), R14
	MOVQ    groups+40(FP), BX
	MOVQ    stride+48(FP), R12
	LEAQ    (R12)(R12*2), R13
	FOLDMASKS
	VMOVUPS ·digits(SB), Z5

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
	SIXES
	ADDQ $64, R14
	ADDQ R12, R15
	DECQ AX
	JNZ  scales
	SUBQ $1024, R14
	STEPROWS($16)
	MOVQ $4, AX

chunk:
	ROWS16AT(K4ROW)
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

// K5 does 64 columns. The fifth bits are in the scratch, at R15:
// turned by Z3 and Z4 they are above the halves, and the index of VPERMI2PS is its lowest
// five bits. Z0 and Z1 have the digits, Z2 the bits of a half.
#define K5(m, n, acc, OUT) \
	VBROADCASTSS     (n)(R14), Z5          \
	VMOVAPS          Z5, Z6                \
	VPMOVZXBD        m, Z7                 \
	VPMOVZXBD        16 m, Z8              \
	VPMOVZXBD        (n)(R15), Z9          \
	VPMOVZXBD        (n+16)(R15), Z10      \
	VFMADD213PS.BCST (n+32)(R14), Z0, Z5   \
	VFMADD213PS.BCST (n+32)(R14), Z1, Z6   \
	VPROLVD          Z3, Z9, Z11           \
	VPROLVD          Z3, Z10, Z12          \
	VPTERNLOGD       $0xb8, Z7, Z2, Z11    \
	VPTERNLOGD       $0xb8, Z8, Z2, Z12    \
	VPERMI2PS        Z6, Z5, Z11           \
	VPERMI2PS        Z6, Z5, Z12           \
	OUT(0, Z11, acc)                       \
	OUT(64, Z12, acc)                      \
	VBROADCASTSS     (n+4)(R14), Z5        \
	VMOVAPS          Z5, Z6                \
	VFMADD213PS.BCST (n+36)(R14), Z0, Z5   \
	VFMADD213PS.BCST (n+36)(R14), Z1, Z6   \
	VPSRLD           $4, Z7, Z7            \
	VPSRLD           $4, Z8, Z8            \
	VPROLVD          Z4, Z9, Z9            \
	VPROLVD          Z4, Z10, Z10          \
	VPTERNLOGD       $0xb8, Z7, Z2, Z9     \
	VPTERNLOGD       $0xb8, Z8, Z2, Z10    \
	VPERMI2PS        Z6, Z5, Z9            \
	VPERMI2PS        Z6, Z5, Z10           \
	OUT(128, Z9, acc)                      \
	OUT(192, Z10, acc)

#define K5ROW(m, n, acc) \
	AHEAD(m) \
	K5(m, n, acc, TIMESX)

// func dot16Q5KAVX512(y *float32, w *byte, x, scratch *float32, cols, groups, stride, add int)
TEXT ·dot16Q5KAVX512(SB), NOSPLIT, $0-64
	FLUSH
	MOVQ         y+0(FP), DI
	MOVQ         w+8(FP), SI
	MOVQ         scratch+24(FP), R14
	MOVQ         groups+40(FP), BX
	MOVQ         stride+48(FP), R12
	LEAQ         (R12)(R12*2), R13
	FOLDMASKS
	MOVL         $15, AX
	VPBROADCASTD AX, Z2
	MOVL         $2, AX
	VPBROADCASTD AX, Z13

group:
	VMOVUPS ·digits+0(SB), Z0
	VMOVUPS ·digits+64(SB), Z1
	ROWSAT(SI)
	CLEAR16
	MOVQ x+16(FP), DX
	MOVQ cols+32(FP), CX
	SHRQ $8, CX

block:
	MOVQ R8, R15
	MOVQ $16, AX

scales:
	SIXES
	VMOVDQU 16(R15), Y7
	VMOVDQU Y7, 1024(R14)
	ADDQ    $64, R14
	ADDQ    R12, R15
	DECQ    AX
	JNZ     scales
	MOVQ    R14, R15
	SUBQ    $1024, R14
	STEPROWS($48)
	MOVL         $4, AX // the turn of bit 0 to bit 4; each further bit one less
	VPBROADCASTD AX, Z3
	MOVL         $3, AX
	VPBROADCASTD AX, Z4
	MOVQ         $4, AX

chunk:
	ROWS16AT(K5ROW)
	VPSUBD Z13, Z3, Z3
	VPSUBD Z13, Z4, Z4
	ADDQ   $256, DX
	STEPROWS($32)
	ADDQ   $8, R14
	DECQ   AX
	JNZ    chunk
	SUBQ   $32, R14
	DECQ   CX
	JNZ    block
	PUT16(add+56(FP))
	DECQ   BX
	JNZ    group
	VZEROUPPER
	KEEP
	RET

// SIX makes sixteen values of a half in ql and two more bits in bits, at their places 4 and
// 5: with the bits of 2^23 above them they are f32, and Z3 takes 2^23 and 32 off.
#define SIX(ql, bits, n, off, acc, OUT) \
	VPTERNLOGD  $0xb8, ql, Z0, bits  \
	VPTERNLOGD  $0xea, Z2, Z1, bits  \
	VSUBPS      Z3, bits, bits       \
	VMULPS.BCST (n)(R14), bits, bits \
	OUT(off, bits, acc)

// K6 does 128 columns. The upper bits are in the scratch, at R15.
#define K6(m, n, acc, OUT) \
	VPMOVZXBD m, Z4                     \
	VPMOVZXBD 16 m, Z5                  \
	VPMOVZXBD 32 m, Z6                  \
	VPMOVZXBD 48 m, Z7                  \
	VPMOVZXBD (n)(R15), Z8              \
	VPMOVZXBD (n+16)(R15), Z9           \
	VPSLLD    $4, Z8, Z10               \
	VPSLLD    $4, Z9, Z11               \
	SIX(Z4, Z10, n, 0, acc, OUT) \
	SIX(Z5, Z11, n+4, 64, acc, OUT) \
	VPSLLD    $2, Z8, Z10               \
	VPSLLD    $2, Z9, Z11               \
	SIX(Z6, Z10, n+8, 128, acc, OUT) \
	SIX(Z7, Z11, n+12, 192, acc, OUT) \
	VMOVDQA32 Z8, Z10                   \
	VMOVDQA32 Z9, Z11                   \
	VPSRLD    $4, Z4, Z4                \
	VPSRLD    $4, Z5, Z5                \
	SIX(Z4, Z10, n+16, 256, acc, OUT) \
	SIX(Z5, Z11, n+20, 320, acc, OUT) \
	VPSRLD    $2, Z8, Z8                \
	VPSRLD    $2, Z9, Z9                \
	VPSRLD    $4, Z6, Z6                \
	VPSRLD    $4, Z7, Z7                \
	SIX(Z6, Z8, n+24, 384, acc, OUT) \
	SIX(Z7, Z9, n+28, 448, acc, OUT)

#define K6ROW(m, n, acc) \
	AHEAD(m) \
	K6(m, n, acc, TIMESX)

// func dot16Q6KAVX512(y *float32, w *byte, x, scratch *float32, cols, groups, stride, add int)
TEXT ·dot16Q6KAVX512(SB), NOSPLIT, $0-64
	FLUSH
	MOVQ         y+0(FP), DI
	MOVQ         w+8(FP), SI
	MOVQ         scratch+24(FP), R14
	MOVQ         groups+40(FP), BX
	MOVQ         stride+48(FP), R12
	LEAQ         (R12)(R12*2), R13
	FOLDMASKS
	MOVL         $0x4b000000, AX // 2^23
	VPBROADCASTD AX, Z2
	MOVL         $0x4b000020, AX // and 32
	VPBROADCASTD AX, Z3

group:
	MOVL         $15, AX
	VPBROADCASTD AX, Z0
	MOVL         $63, AX
	VPBROADCASTD AX, Z1
	ROWSAT(SI)
	CLEAR16
	MOVQ x+16(FP), DX
	MOVQ cols+32(FP), CX
	SHRQ $8, CX

block:
	MOVQ R8, R15
	MOVQ $16, AX

scales:
	VPMOVSXBD    192(R15), Z7
	VCVTDQ2PS    Z7, Z7
	VPBROADCASTW 208(R15), Y6
	VCVTPH2PS    Y6, Z6
	VMULPS       Z6, Z7, Z7
	VMOVUPS      Z7, (R14)
	VMOVDQU32    128(R15), Z7
	VMOVDQU32    Z7, 1024(R14)
	ADDQ         $64, R14
	ADDQ         R12, R15
	DECQ         AX
	JNZ          scales
	MOVQ         R14, R15
	SUBQ         $1024, R14
	MOVQ         $2, AX

chunk:
	ROWS16AT(K6ROW)
	ADDQ $512, DX
	STEPROWS($64)
	ADDQ $32, R14
	ADDQ $32, R15
	DECQ AX
	JNZ  chunk
	SUBQ $64, R14
	STEPROWS($82)
	DECQ CX
	JNZ  block
	PUT16(add+56(FP))
	DECQ BX
	JNZ  group
	VZEROUPPER
	KEEP
	RET

// func expandQ4KAVX512(dst *float32, w *byte, scratch *float32, blocks int)
TEXT ·expandQ4KAVX512(SB), NOSPLIT, $0-32
	FLUSH
	MOVQ    dst+0(FP), DX
	MOVQ    w+8(FP), R15
	MOVQ    scratch+16(FP), R14
	MOVQ    blocks+24(FP), CX
	VMOVUPS ·digits(SB), Z5

block:
	SIXES
	ADDQ $16, R15
	MOVQ $4, AX

chunk:
	K4((R15), 0, Z0, STORED)
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

// func expandQ5KAVX512(dst *float32, w *byte, scratch *float32, blocks int)
TEXT ·expandQ5KAVX512(SB), NOSPLIT, $0-32
	FLUSH
	MOVQ         dst+0(FP), DX
	MOVQ         w+8(FP), R15
	MOVQ         scratch+16(FP), R14
	MOVQ         blocks+24(FP), CX
	VMOVUPS      ·digits+0(SB), Z0
	VMOVUPS      ·digits+64(SB), Z1
	MOVL         $15, AX
	VPBROADCASTD AX, Z2
	MOVL         $2, AX
	VPBROADCASTD AX, Z13

block:
	SIXES
	ADDQ         $16, R15
	LEAQ         32(R15), R8
	MOVL         $4, AX
	VPBROADCASTD AX, Z3
	MOVL         $3, AX
	VPBROADCASTD AX, Z4
	MOVQ         $4, AX

chunk:
	K5((R8), 0, Z5, STORED)
	VPSUBD Z13, Z3, Z3
	VPSUBD Z13, Z4, Z4
	ADDQ   $256, DX
	ADDQ   $32, R8
	ADDQ   $8, R14
	DECQ   AX
	JNZ    chunk
	SUBQ   $32, R14
	MOVQ   R8, R15
	DECQ   CX
	JNZ    block
	VZEROUPPER
	KEEP
	RET

// func expandQ6KAVX512(dst *float32, w *byte, scratch *float32, blocks int)
TEXT ·expandQ6KAVX512(SB), NOSPLIT, $0-32
	FLUSH
	MOVQ         dst+0(FP), DX
	MOVQ         w+8(FP), R8
	MOVQ         scratch+16(FP), R14
	MOVQ         blocks+24(FP), CX
	MOVL         $15, AX
	VPBROADCASTD AX, Z0
	MOVL         $63, AX
	VPBROADCASTD AX, Z1
	MOVL         $0x4b000000, AX
	VPBROADCASTD AX, Z2
	MOVL         $0x4b000020, AX
	VPBROADCASTD AX, Z3

block:
	VPMOVSXBD    192(R8), Z7
	VCVTDQ2PS    Z7, Z7
	VPBROADCASTW 208(R8), Y6
	VCVTPH2PS    Y6, Z6
	VMULPS       Z6, Z7, Z7
	VMOVUPS      Z7, (R14)
	LEAQ         128(R8), R15
	MOVQ         $2, AX

chunk:
	K6((R8), 0, Z4, STORED)
	ADDQ $512, DX
	ADDQ $64, R8
	ADDQ $32, R14
	ADDQ $32, R15
	DECQ AX
	JNZ  chunk
	SUBQ $64, R14
	ADDQ $82, R8
	DECQ CX
	JNZ  block
	VZEROUPPER
	KEEP
	RET
