#include "textflag.h"
#include "floats_amd64.h"
#include "rows512_amd64.h"

// Products of matrix rows of f32 with vectors. However many rows or vectors are done
// together: a sum is made in sixteen lanes, lane l of the columns l, l+16, …, each a
// chain of fused additions, and the lanes are added as SUM16 says.

#define FMAROW(m, acc) \
	VFMADD231PS m, Z0, acc

#define FMATAIL(m, acc) \
	VFMADD231PS m, Z0, K1, acc

// func dot16F32AVX512(y, w, x *float32, cols, groups, stride, add int)
// groups times sixteen rows of cols elements, stride bytes apart. Sums are added to
// y if add is not 0.
TEXT ·dot16F32AVX512(SB), NOSPLIT, $0-56
	FLUSH
	DOT16(FMAROW, FMATAIL, $64)

// func dot1F32AVX512(w, x *float32, cols int) float32
TEXT ·dot1F32AVX512(SB), NOSPLIT, $0-28
	FLUSH
	MOVQ   w+0(FP), SI
	MOVQ   x+8(FP), DX
	MOVQ   cols+16(FP), BX
	VPXORD Z0, Z0, Z0
	MOVQ   BX, CX
	ANDL   $15, CX
	TAIL16
	SHRQ   $4, BX
	JZ     tail

loop:
	VMOVUPS     (DX), Z1
	VFMADD231PS (SI), Z1, Z0
	ADDQ        $64, DX
	ADDQ        $64, SI
	DECQ        BX
	JNZ         loop

tail:
	KORTESTW    K1, K1
	JZ          sum
	VMOVUPS.Z   (DX), K1, Z1
	VFMADD231PS (SI), Z1, K1, Z0

sum:
	SUMLANES
	VMOVSS X0, ret+24(FP)
	VZEROUPPER
	KEEP
	RET

#define FMAX(x0, a0, a1, a2, a3) \
	VFMADD231PS Z0, x0, a0 \
	VFMADD231PS Z1, x0, a1 \
	VFMADD231PS Z2, x0, a2 \
	VFMADD231PS Z3, x0, a3

// func tile4x4F32AVX512(y, w, x *float32, cols, quads, wstride, xstride, ystride, add int)
// quads times four rows, wstride bytes apart, with each of four vectors, xstride bytes
// apart; results of a vector are ystride bytes from those of the one before.
TEXT ·tile4x4F32AVX512(SB), NOSPLIT, $0-72
	FLUSH
	MOVQ y+0(FP), R15
	MOVQ w+8(FP), SI
	MOVQ quads+32(FP), R14
	MOVQ wstride+40(FP), R12
	LEAQ (R12)(R12*2), R13
	MOVQ xstride+48(FP), R10
	LEAQ (R10)(R10*2), R11
	MOVQ ystride+56(FP), BX
	MOVQ cols+24(FP), CX
	ANDL $15, CX
	TAIL16
	FOLDMASKS

quad:
	MOVQ SI, R8
	MOVQ x+16(FP), R9
	CLEAR16
	MOVQ cols+24(FP), CX
	SHRQ $4, CX
	JZ   tail

loop:
	AHEAD((R8))
	AHEAD((R8)(R12*1))
	AHEAD((R8)(R12*2))
	AHEAD((R8)(R13*1))
	VMOVUPS (R8), Z0
	VMOVUPS (R8)(R12*1), Z1
	VMOVUPS (R8)(R12*2), Z2
	VMOVUPS (R8)(R13*1), Z3
	VMOVUPS (R9), Z4
	VMOVUPS (R9)(R10*1), Z5
	VMOVUPS (R9)(R10*2), Z6
	VMOVUPS (R9)(R11*1), Z7
	FMAX(Z4, Z16, Z17, Z18, Z19)
	FMAX(Z5, Z20, Z21, Z22, Z23)
	FMAX(Z6, Z24, Z25, Z26, Z27)
	FMAX(Z7, Z28, Z29, Z30, Z31)
	ADDQ    $64, R8
	ADDQ    $64, R9
	DECQ    CX
	JNZ     loop

tail:
	KORTESTW  K1, K1
	JZ        sum
	VMOVUPS.Z (R8), K1, Z0
	VMOVUPS.Z (R8)(R12*1), K1, Z1
	VMOVUPS.Z (R8)(R12*2), K1, Z2
	VMOVUPS.Z (R8)(R13*1), K1, Z3
	VMOVUPS.Z (R9), K1, Z4
	VMOVUPS.Z (R9)(R10*1), K1, Z5
	VMOVUPS.Z (R9)(R10*2), K1, Z6
	VMOVUPS.Z (R9)(R11*1), K1, Z7
	FMAX(Z4, Z16, Z17, Z18, Z19)
	FMAX(Z5, Z20, Z21, Z22, Z23)
	FMAX(Z6, Z24, Z25, Z26, Z27)
	FMAX(Z7, Z28, Z29, Z30, Z31)

sum:
	SUM16
	MOVQ R15, DI
	CMPQ add+64(FP), $0
	JE   store
	VEXTRACTF32X4 $0, Z16, X1
	VADDPS        (DI), X1, X1
	VMOVUPS       X1, (DI)
	ADDQ          BX, DI
	VEXTRACTF32X4 $1, Z16, X1
	VADDPS        (DI), X1, X1
	VMOVUPS       X1, (DI)
	ADDQ          BX, DI
	VEXTRACTF32X4 $2, Z16, X1
	VADDPS        (DI), X1, X1
	VMOVUPS       X1, (DI)
	ADDQ          BX, DI
	VEXTRACTF32X4 $3, Z16, X1
	VADDPS        (DI), X1, X1
	VMOVUPS       X1, (DI)
	JMP           next

store:
	VEXTRACTF32X4 $0, Z16, (DI)
	ADDQ          BX, DI
	VEXTRACTF32X4 $1, Z16, (DI)
	ADDQ          BX, DI
	VEXTRACTF32X4 $2, Z16, (DI)
	ADDQ          BX, DI
	VEXTRACTF32X4 $3, Z16, (DI)

next:
	ADDQ $16, R15
	LEAQ (SI)(R12*4), SI
	DECQ R14
	JNZ  quad
	VZEROUPPER
	KEEP
	RET
