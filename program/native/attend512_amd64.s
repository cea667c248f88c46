#include "textflag.h"
#include "floats_amd64.h"
#include "rows512_amd64.h"

// Attention of several heads to a cache in pages: runs of sixteen positions, whose keys
// and values lie width bytes apart; places says where the runs begin, in elements. There
// are groups of heads with the same keys and values, each heads in a group, and groups
// lie dim elements apart. A run is done for all heads before the next, as it is in the
// caches then. Weights of a head are pitch bytes from those of the one before.

#define KEYROW(m, acc) \
	VFMADD231PS m, Z4, acc

#define KEYTAIL(m, acc) \
	VFMADD231PS m, Z4, K1, acc

// TWO8 has two rows of eight elements side by side.
#define TWO8(m, n, y, z) \
	VMOVUPS      m, y       \
	VINSERTF64X4 $1, n, z, z

// func scoresAVX512(dst, query, k *float32, places *uint64, runs, width, dim, groups, each, pitch int)
// dst = the products of the keys of whole runs with the queries of the heads.
TEXT ·scoresAVX512(SB), NOSPLIT, $0-80
	FLUSH
	MOVQ dst+0(FP), DI
	MOVQ places+24(FP), R14
	MOVQ width+40(FP), R12
	LEAQ (R12)(R12*2), R13
	MOVQ dim+48(FP), CX
	FOLDMASKS
	CMPQ CX, $8
	JEQ  run8
	ANDL $15, CX
	TAIL16

run:
	MOVQ (R14), AX
	MOVQ k+16(FP), R15
	LEAQ (R15)(AX*4), R15
	MOVQ query+8(FP), DX
	MOVQ DI, BX
	MOVQ groups+56(FP), SI

group:
	MOVQ each+64(FP), AX

head:
	ROWSAT(R15)
	CLEAR16
	MOVQ dim+48(FP), CX
	SHRQ $4, CX
	JZ   tail

loop:
	VMOVUPS (DX), Z4
	ROWS16(KEYROW)
	ADDQ    $64, DX
	STEPROWS($64)
	DECQ    CX
	JNZ     loop

tail:
	KORTESTW  K1, K1
	JZ        sum
	VMOVUPS.Z (DX), K1, Z4
	ROWS16(KEYTAIL)
	MOVQ      dim+48(FP), CX
	ANDQ      $15, CX
	LEAQ      (DX)(CX*4), DX

sum:
	SUM16
	VMOVUPS Z16, (BX)
	ADDQ    pitch+72(FP), BX
	DECQ    AX
	JNZ     head
	MOVQ    dim+48(FP), CX
	LEAQ    (R15)(CX*4), R15
	DECQ    SI
	JNZ     group
	ADDQ    $64, DI
	ADDQ    $8, R14
	DECQ    runs+32(FP)
	JNZ     run
	VZEROUPPER
	KEEP
	RET

run8:
	MOVQ (R14), AX
	MOVQ k+16(FP), R15
	LEAQ (R15)(AX*4), R15
	MOVQ query+8(FP), DX
	MOVQ DI, BX
	MOVQ groups+56(FP), SI

group8:
	MOVQ each+64(FP), AX
	ROWSAT(R15)
	TWO8((R8), (R9), Y8, Z8)
	TWO8((R10), (R11), Y9, Z9)
	TWO8((R8)(R12*1), (R9)(R12*1), Y10, Z10)
	TWO8((R10)(R12*1), (R11)(R12*1), Y11, Z11)
	TWO8((R8)(R12*2), (R9)(R12*2), Y12, Z12)
	TWO8((R10)(R12*2), (R11)(R12*2), Y13, Z13)
	TWO8((R8)(R13*1), (R9)(R13*1), Y14, Z14)
	TWO8((R10)(R13*1), (R11)(R13*1), Y15, Z15)

head8:
	VBROADCASTF64X4 (DX), Z4
	VMULPS          Z8, Z4, Z16
	VMULPS          Z9, Z4, Z24
	VMULPS          Z10, Z4, Z17
	VMULPS          Z11, Z4, Z25
	VMULPS          Z12, Z4, Z18
	VMULPS          Z13, Z4, Z26
	VMULPS          Z14, Z4, Z19
	VMULPS          Z15, Z4, Z27
	SUM16HALVES
	VMOVUPS         Z16, (BX)
	ADDQ            $32, DX
	ADDQ            pitch+72(FP), BX
	DECQ            AX
	JNZ             head8
	ADDQ            $32, R15
	DECQ            SI
	JNZ             group8
	ADDQ            $64, DI
	ADDQ            $8, R14
	DECQ            runs+32(FP)
	JNZ             run8
	VZEROUPPER
	KEEP
	RET

#define VALUE1(m, at, p, acc) \
	VBROADCASTSS at(SI), p    \
	VFMADD231PS  m, p, K1, acc

#define VALUE4(m, at, a0, a1, a2, a3) \
	VBROADCASTSS at(SI), Z8          \
	VFMADD231PS  m, Z8, K1, a0       \
	VFMADD231PS  64 m, Z8, K2, a1    \
	VFMADD231PS  128 m, Z8, K3, a2   \
	VFMADD231PS  192 m, Z8, K4, a3

// PAIROF makes the index that gives eight lanes of element n and eight of n+1; K5 has
// the upper lanes.
#define PAIROF(n, m, z) \
	MOVL         n, AX      \
	VPBROADCASTD AX, z      \
	MOVL         m, AX      \
	VPBROADCASTD AX, K5, z

// func valuesAVX512(sums, weights, v *float32, places *uint64, n, width, dim, groups, each, pitch int)
// sums += the values of n positions times their weights, for all heads; sums of a head
// are dim elements from those of the one before. In a run, up to sixteen elements of a
// value are added up in four chains, more in two; of eight, with all positions there, in
// eight. Nothing is used of positions from n on.
TEXT ·valuesAVX512(SB), NOSPLIT, $0-80
	FLUSH
	MOVQ weights+8(FP), R9
	MOVQ width+40(FP), R12
	LEAQ (R12)(R12*2), R13
	MOVQ dim+48(FP), CX
	CMPQ CX, $16
	JGT  run
	MOVL $1, AX
	SHLL CX, AX
	DECL AX
	KMOVW AX, K1
	CMPQ CX, $8
	JNE  run
	MOVL $0xff00, AX
	KMOVW AX, K5
	PAIROF($0, $1, Z24)
	PAIROF($2, $3, Z25)
	PAIROF($4, $5, Z26)
	PAIROF($6, $7, Z27)
	PAIROF($8, $9, Z28)
	PAIROF($10, $11, Z29)
	PAIROF($12, $13, Z30)
	PAIROF($14, $15, Z31)

run: // R10 is at its values, CX how many of its positions are there, R9 at their weights
	MOVQ    places+24(FP), DX
	MOVQ    (DX), R8
	ADDQ    $8, places+24(FP)
	MOVQ    v+16(FP), R10
	LEAQ    (R10)(R8*4), R10
	MOVQ    $16, CX
	MOVQ    n+32(FP), AX
	CMPQ    AX, CX
	CMOVQLT AX, CX
	SUBQ    CX, n+32(FP)
	MOVQ    sums+0(FP), DI
	MOVQ    R9, R11
	MOVQ    groups+56(FP), R15
	MOVQ    dim+48(FP), DX
	CMPQ    DX, $8
	JNE     group
	CMPQ    CX, $16
	JEQ     group8

group:
	MOVQ each+64(FP), R14

head:
	MOVQ dim+48(FP), DX
	CMPQ DX, $16
	JGT  wide
	MOVQ R10, R8
	MOVQ R11, SI
	MOVQ CX, BX
	VMOVUPS.Z (DI), K1, Z0
	VPXORD Z1, Z1, Z1
	VPXORD Z2, Z2, Z2
	VPXORD Z3, Z3, Z3

four1:
	CMPQ BX, $4
	JLT  rest1
	VALUE1((R8), 0, Z4, Z0)
	VALUE1((R8)(R12*1), 4, Z5, Z1)
	VALUE1((R8)(R12*2), 8, Z6, Z2)
	VALUE1((R8)(R13*1), 12, Z7, Z3)
	ADDQ $16, SI
	LEAQ (R8)(R12*4), R8
	SUBQ $4, BX
	JMP  four1

rest1:
	TESTQ BX, BX
	JZ    sum1
	VALUE1((R8), 0, Z4, Z0)
	DECQ  BX
	JZ    sum1
	VALUE1((R8)(R12*1), 4, Z5, Z1)
	DECQ  BX
	JZ    sum1
	VALUE1((R8)(R12*2), 8, Z6, Z2)

sum1:
	VADDPS  Z1, Z0, Z0
	VADDPS  Z3, Z2, Z2
	VADDPS  Z2, Z0, Z0
	VMOVUPS Z0, K1, (DI)
	LEAQ    (DI)(DX*4), DI
	JMP     next

wide: // DX elements are left, sixty-four are done at a time
	MOVQ    dim+48(FP), AX
	SUBQ    DX, AX
	LEAQ    (R10)(AX*4), R8
	MOVQ    CX, BX
	MOVQ    $64, CX
	CMPQ    DX, CX
	CMOVQLT DX, CX
	MOVQ    $-1, AX
	NEGQ    CX
	SHRQ    CX, AX // 64 less as many
	MOVQ    BX, CX
	KMOVW   AX, K1
	SHRQ    $16, AX
	KMOVW   AX, K2
	SHRQ    $16, AX
	KMOVW   AX, K3
	SHRQ    $16, AX
	KMOVW   AX, K4
	MOVQ    R11, SI
	VMOVUPS.Z (DI), K1, Z0
	VMOVUPS.Z 64(DI), K2, Z1
	VMOVUPS.Z 128(DI), K3, Z2
	VMOVUPS.Z 192(DI), K4, Z3
	VPXORD  Z4, Z4, Z4
	VPXORD  Z5, Z5, Z5
	VPXORD  Z6, Z6, Z6
	VPXORD  Z7, Z7, Z7

two4:
	CMPQ BX, $2
	JLT  rest4
	VALUE4((R8), 0, Z0, Z1, Z2, Z3)
	VALUE4((R8)(R12*1), 4, Z4, Z5, Z6, Z7)
	ADDQ $8, SI
	LEAQ (R8)(R12*2), R8
	SUBQ $2, BX
	JMP  two4

rest4:
	TESTQ BX, BX
	JZ    sum4
	VALUE4((R8), 0, Z0, Z1, Z2, Z3)

sum4:
	VADDPS  Z4, Z0, Z0
	VADDPS  Z5, Z1, Z1
	VADDPS  Z6, Z2, Z2
	VADDPS  Z7, Z3, Z3
	VMOVUPS Z0, K1, (DI)
	VMOVUPS Z1, K2, 64(DI)
	VMOVUPS Z2, K3, 128(DI)
	VMOVUPS Z3, K4, 192(DI)
	MOVQ    $64, AX
	CMPQ    DX, AX
	CMOVQLT DX, AX
	LEAQ    (DI)(AX*4), DI
	SUBQ    $64, DX
	JGT     wide

next:
	ADDQ pitch+72(FP), R11
	DECQ R14
	JNZ  head
	MOVQ dim+48(FP), DX
	LEAQ (R10)(DX*4), R10
	DECQ R15
	JNZ  group
	JMP  nextrun

group8:
	MOVQ each+64(FP), R14
	MOVQ R10, R8
	TWO8((R8), (R8)(R12*1), Y8, Z8)
	TWO8((R8)(R12*2), (R8)(R13*1), Y9, Z9)
	LEAQ (R8)(R12*4), R8
	TWO8((R8), (R8)(R12*1), Y10, Z10)
	TWO8((R8)(R12*2), (R8)(R13*1), Y11, Z11)
	LEAQ (R8)(R12*4), R8
	TWO8((R8), (R8)(R12*1), Y12, Z12)
	TWO8((R8)(R12*2), (R8)(R13*1), Y13, Z13)
	LEAQ (R8)(R12*4), R8
	TWO8((R8), (R8)(R12*1), Y14, Z14)
	TWO8((R8)(R12*2), (R8)(R13*1), Y15, Z15)

head8:
	VMOVUPS       (R11), Z4
	VPERMPS       Z4, Z24, Z0
	VPERMPS       Z4, Z25, Z1
	VPERMPS       Z4, Z26, Z2
	VPERMPS       Z4, Z27, Z3
	VMULPS        Z8, Z0, Z0
	VMULPS        Z9, Z1, Z1
	VMULPS        Z10, Z2, Z2
	VMULPS        Z11, Z3, Z3
	VPERMPS       Z4, Z28, Z5
	VPERMPS       Z4, Z29, Z6
	VPERMPS       Z4, Z30, Z7
	VPERMPS       Z4, Z31, Z4
	VFMADD231PS   Z12, Z5, Z0
	VFMADD231PS   Z13, Z6, Z1
	VFMADD231PS   Z14, Z7, Z2
	VFMADD231PS   Z15, Z4, Z3
	VADDPS        Z1, Z0, Z0
	VADDPS        Z3, Z2, Z2
	VADDPS        Z2, Z0, Z0
	VEXTRACTF64X4 $1, Z0, Y1
	VADDPS        Y1, Y0, Y0
	VADDPS        (DI), Y0, Y0
	VMOVUPS       Y0, (DI)
	ADDQ          $32, DI
	ADDQ          pitch+72(FP), R11
	DECQ          R14
	JNZ           head8
	ADDQ          $32, R10
	DECQ          R15
	JNZ           group8

nextrun:
	ADDQ $64, R9
	CMPQ n+32(FP), $0
	JNE  run
	VZEROUPPER
	KEEP
	RET
