#include "textflag.h"
#include "floats_amd64.h"
#include "rows512_amd64.h"
#include "blocks512_amd64.h"

// As dot16F32AVX512, of weights in other types: each is made the f32 that it stands for
// on the way, so that the sums are those of the expanded rows.

#define HALFROW(m, acc) \
	AHEAD(m) \
	VCVTPH2PS   m, Z1       \
	VFMADD231PS Z1, Z0, acc

#define HALFTAIL(m, acc) \
	VMOVDQU16.Z m, K1, Y1   \
	VCVTPH2PS   Y1, Z1      \
	VFMADD231PS Z1, Z0, acc

// func dot16F16AVX512(y *float32, w *byte, x *float32, cols, groups, stride, add int)
TEXT ·dot16F16AVX512(SB), NOSPLIT, $0-56
	FLUSH
	DOT16(HALFROW, HALFTAIL, $32)

#define BRAINROW(m, acc) \
	AHEAD(m) \
	VPMOVZXWD   m, Z1       \
	VPSLLD      $16, Z1, Z1 \
	VFMADD231PS Z1, Z0, acc

#define BRAINTAIL(m, acc) \
	VMOVDQU16.Z m, K1, Y1   \
	VPMOVZXWD   Y1, Z1      \
	VPSLLD      $16, Z1, Z1 \
	VFMADD231PS Z1, Z0, acc

// func dot16BF16AVX512(y *float32, w *byte, x *float32, cols, groups, stride, add int)
TEXT ·dot16BF16AVX512(SB), NOSPLIT, $0-56
	FLUSH
	DOT16(BRAINROW, BRAINTAIL, $32)

// A block of q8_0 is an f16 scale and 32 signed bytes; the product of the two is exact.
// Scales are looked up in a table of all halves, at R15: the units that would convert
// them are the ones that convert the bytes.
#define Q8ROW(m, acc) \
	AHEAD(m) \
	MOVWLZX      m, AX       \
	VBROADCASTSS (R15)(AX*4), Z2 \
	VPMOVSXBD    2 m, Z3     \
	VPMOVSXBD    18 m, Z4    \
	VCVTDQ2PS    Z3, Z3      \
	VCVTDQ2PS    Z4, Z4      \
	VMULPS       Z2, Z3, Z3  \
	VMULPS       Z2, Z4, Z4  \
	VFMADD231PS  Z3, Z0, acc \
	VFMADD231PS  Z4, Z1, acc

// func dot16Q8AVX512(y *float32, w *byte, x *float32, cols, groups, stride, add int)
TEXT ·dot16Q8AVX512(SB), NOSPLIT, $0-56
	FLUSH
	LEAQ ·halves(SB), R15
	DOT16BLOCKS(Q8ROW, $34)

// func dot16Q4AVX512(y *float32, w *byte, x *float32, cols, groups, stride, add int)
TEXT ·dot16Q4AVX512(SB), NOSPLIT, $0-56
	FLUSH
	LEAQ    ·halves(SB), R15
	VMOVUPS ·nibbles(SB), Z5
	DOT16BLOCKS(Q4ROW, $18)

// ROWS16SCALED does OP(memory, scales, accumulator) for sixteen rows as ROWS16 does; the
// scales of the rows are R14 bytes apart: AX, BX, SI and DI are at the first of four each,
// R15 is three times R14.
#define ROWS16SCALED(OP) \
	OP((R8), (AX), Z16)                   \
	OP((R8)(R12*1), (AX)(R14*1), Z17)     \
	OP((R8)(R12*2), (AX)(R14*2), Z18)     \
	OP((R8)(R13*1), (AX)(R15*1), Z19)     \
	OP((R9), (BX), Z20)                   \
	OP((R9)(R12*1), (BX)(R14*1), Z21)     \
	OP((R9)(R12*2), (BX)(R14*2), Z22)     \
	OP((R9)(R13*1), (BX)(R15*1), Z23)     \
	OP((R10), (SI), Z24)                  \
	OP((R10)(R12*1), (SI)(R14*1), Z25)    \
	OP((R10)(R12*2), (SI)(R14*2), Z26)    \
	OP((R10)(R13*1), (SI)(R15*1), Z27)    \
	OP((R11), (DI), Z28)                  \
	OP((R11)(R12*1), (DI)(R14*1), Z29)    \
	OP((R11)(R12*2), (DI)(R14*2), Z30)    \
	OP((R11)(R13*1), (DI)(R15*1), Z31)

#define STEPSCALES(bytes) \
	ADDQ bytes, AX \
	ADDQ bytes, BX \
	ADDQ bytes, SI \
	ADDQ bytes, DI

// SCALESAT points AX, BX, SI and DI to the scales from s on.
#define SCALESAT(s, stride) \
	MOVQ stride, R14         \
	LEAQ (R14)(R14*2), R15   \
	MOVQ s, AX               \
	LEAQ (AX)(R14*4), BX     \
	LEAQ (BX)(R14*4), SI     \
	LEAQ (SI)(R14*4), DI

// I8ROW does sixteen columns of a row of signed bytes whose scale is at s.
#define I8ROW(m, s, acc) \
	AHEAD(m) \
	VPMOVSXBD   m, Z1       \
	VCVTDQ2PS   Z1, Z1      \
	VMULPS.BCST s, Z1, Z1   \
	VFMADD231PS Z1, Z0, acc

// func dot16I8AVX512(y *float32, w *byte, s, x *float32, group, groups, wstride, sstride, add int)
// Sixteen rows, wstride bytes apart, of groups times group columns (a multiple of 16)
// that have a scale together; the scales of rows are sstride bytes apart.
TEXT ·dot16I8AVX512(SB), NOSPLIT, $0-72
	FLUSH
	MOVQ w+8(FP), SI
	MOVQ wstride+48(FP), R12
	LEAQ (R12)(R12*2), R13
	FOLDMASKS
	ROWSAT(SI)
	CLEAR16
	MOVQ x+24(FP), DX
	SCALESAT(s+16(FP), sstride+56(FP))

group:
	MOVQ group+32(FP), CX

loop:
	VMOVUPS (DX), Z0
	ROWS16SCALED(I8ROW)
	ADDQ    $64, DX
	STEPROWS($16)
	SUBQ    $16, CX
	JNZ     loop
	STEPSCALES($4)
	DECQ    groups+40(FP)
	JNZ     group
	MOVQ    y+0(FP), DI
	PUT16(add+64(FP))
	VZEROUPPER
	KEEP
	RET

// I8SROW does sixteen columns of a row that have several scales, which begin at s: K4
// has as many lanes as they are, Z6 says which scale is a column's. I8STAIL does the
// columns that are in K1, with the scales that are in K5.
#define I8SROW(m, s, acc) \
	AHEAD(m) \
	VMOVUPS.Z   s, K4, Z2   \
	VPMOVSXBD   m, Z1       \
	VPERMPS     Z2, Z6, Z2  \
	VCVTDQ2PS   Z1, Z1      \
	VMULPS      Z2, Z1, Z1  \
	VFMADD231PS Z1, Z0, acc

#define I8STAIL(m, s, acc) \
	VMOVUPS.Z   s, K5, Z2   \
	VMOVDQU8.Z  m, K1, X1   \
	VPMOVSXBD   X1, Z1      \
	VPERMPS     Z2, Z6, Z2  \
	VCVTDQ2PS   Z1, Z1      \
	VMULPS      Z2, Z1, Z1  \
	VFMADD231PS Z1, Z0, acc

// func dot16I8SmallAVX512(y *float32, w *byte, s, x *float32, cols, shift, sstride, add int)
// As dot16I8AVX512, for groups of 1<<shift columns, at most eight; cols is whole groups.
TEXT ·dot16I8SmallAVX512(SB), NOSPLIT, $0-64
	FLUSH
	MOVQ      w+8(FP), SI
	MOVQ      cols+32(FP), R12
	LEAQ      (R12)(R12*2), R13
	FOLDMASKS
	MOVQ      shift+40(FP), CX
	VMOVD     CX, X1
	VMOVDQU32 ·lanes(SB), Z6
	VPSRLD    X1, Z6, Z6
	MOVL      $16, DX
	SHRL      CX, DX // scales of sixteen columns
	MOVL      R12, BX
	ANDL      $15, BX
	MOVL      BX, DI
	SHRL      CX, DI // and of the last ones
	MOVL      $1, AX
	MOVL      DX, CX
	SHLL      CX, AX
	DECL      AX
	KMOVW     AX, K4
	MOVL      $1, AX
	MOVL      DI, CX
	SHLL      CX, AX
	DECL      AX
	KMOVW     AX, K5
	MOVL      BX, CX
	TAIL16
	SHLQ      $2, DX
	MOVQ      DX, shift+40(FP) // bytes of scales to a step
	ROWSAT(SI)
	CLEAR16
	MOVQ      x+24(FP), DX
	SCALESAT(s+16(FP), sstride+48(FP))
	MOVQ      R12, CX
	SHRQ      $4, CX
	JZ        tail

loop:
	VMOVUPS (DX), Z0
	ROWS16SCALED(I8SROW)
	ADDQ    $64, DX
	STEPROWS($16)
	STEPSCALES(shift+40(FP))
	DECQ    CX
	JNZ     loop

tail:
	KORTESTW  K1, K1
	JZ        sum
	VMOVUPS.Z (DX), K1, Z0
	ROWS16SCALED(I8STAIL)

sum:
	MOVQ y+0(FP), DI
	PUT16(add+56(FP))
	VZEROUPPER
	KEEP
	RET
