#include "textflag.h"
#include "floats_amd64.h"
#include "elem_amd64.h"

// As linear512_amd64.s, in eight lanes, which are added as SUM8 does.

#define CLEAR8 \
	VXORPS Y0, Y0, Y0 \
	VXORPS Y1, Y1, Y1 \
	VXORPS Y2, Y2, Y2 \
	VXORPS Y3, Y3, Y3 \
	VXORPS Y4, Y4, Y4 \
	VXORPS Y5, Y5, Y5 \
	VXORPS Y6, Y6, Y6 \
	VXORPS Y7, Y7, Y7

// SUMS8 makes lane i of Y0 the sum of the lanes of Yi, for i from 0 to 7.
#define SUMS8 \
	VHADDPS    Y1, Y0, Y0        \
	VHADDPS    Y3, Y2, Y2        \
	VHADDPS    Y5, Y4, Y4        \
	VHADDPS    Y7, Y6, Y6        \
	VHADDPS    Y2, Y0, Y0        \
	VHADDPS    Y6, Y4, Y4        \
	VPERM2F128 $0x20, Y4, Y0, Y1 \
	VPERM2F128 $0x31, Y4, Y0, Y2 \
	VADDPS     Y2, Y1, Y0

// func dot8F32AVX2(y, w, x *float32, cols, groups, stride, add int)
// groups times eight rows of cols elements, stride bytes apart. Sums are added to y if
// add is not 0.
TEXT ·dot8F32AVX2(SB), NOSPLIT, $0-56
	FLUSH
	MOVQ y+0(FP), DI
	MOVQ w+8(FP), SI
	MOVQ groups+32(FP), BX
	MOVQ stride+40(FP), R12
	LEAQ (R12)(R12*2), R13

group:
	MOVQ SI, R8
	LEAQ (R8)(R12*4), R9
	MOVQ x+16(FP), DX
	MOVQ cols+24(FP), CX
	CLEAR8

loop:
	CMPQ        CX, $8
	JLT         tail
	VMOVUPS     (DX), Y8
	VFMADD231PS (R8), Y8, Y0
	VFMADD231PS (R8)(R12*1), Y8, Y1
	VFMADD231PS (R8)(R12*2), Y8, Y2
	VFMADD231PS (R8)(R13*1), Y8, Y3
	VFMADD231PS (R9), Y8, Y4
	VFMADD231PS (R9)(R12*1), Y8, Y5
	VFMADD231PS (R9)(R12*2), Y8, Y6
	VFMADD231PS (R9)(R13*1), Y8, Y7
	ADDQ        $32, DX
	ADDQ        $32, R8
	ADDQ        $32, R9
	SUBQ        $8, CX
	JMP         loop

tail:
	TESTQ       CX, CX
	JZ          sum
	TAILMASK(Y15)
	VMASKMOVPS  (DX), Y15, Y8
	VMASKMOVPS  (R8), Y15, Y9
	VFMADD231PS Y9, Y8, Y0
	VMASKMOVPS  (R8)(R12*1), Y15, Y9
	VFMADD231PS Y9, Y8, Y1
	VMASKMOVPS  (R8)(R12*2), Y15, Y9
	VFMADD231PS Y9, Y8, Y2
	VMASKMOVPS  (R8)(R13*1), Y15, Y9
	VFMADD231PS Y9, Y8, Y3
	VMASKMOVPS  (R9), Y15, Y9
	VFMADD231PS Y9, Y8, Y4
	VMASKMOVPS  (R9)(R12*1), Y15, Y9
	VFMADD231PS Y9, Y8, Y5
	VMASKMOVPS  (R9)(R12*2), Y15, Y9
	VFMADD231PS Y9, Y8, Y6
	VMASKMOVPS  (R9)(R13*1), Y15, Y9
	VFMADD231PS Y9, Y8, Y7

sum:
	SUMS8
	CMPQ   add+48(FP), $0
	JE     store
	VADDPS (DI), Y0, Y0

store:
	VMOVUPS Y0, (DI)
	ADDQ    $32, DI
	LEAQ    (SI)(R12*8), SI
	DECQ    BX
	JNZ     group
	VZEROUPPER
	KEEP
	RET

// func dot1F32AVX2(w, x *float32, cols int) float32
TEXT ·dot1F32AVX2(SB), NOSPLIT, $0-28
	FLUSH
	MOVQ   w+0(FP), SI
	MOVQ   x+8(FP), DX
	MOVQ   cols+16(FP), CX
	VXORPS Y0, Y0, Y0

loop:
	CMPQ        CX, $8
	JLT         tail
	VMOVUPS     (DX), Y1
	VFMADD231PS (SI), Y1, Y0
	ADDQ        $32, DX
	ADDQ        $32, SI
	SUBQ        $8, CX
	JMP         loop

tail:
	TESTQ       CX, CX
	JZ          sum
	TAILMASK(Y15)
	VMASKMOVPS  (DX), Y15, Y1
	VMASKMOVPS  (SI), Y15, Y2
	VFMADD231PS Y2, Y1, Y0

sum:
	SUM8
	VMOVSS X0, ret+24(FP)
	VZEROUPPER
	KEEP
	RET

// func tile4x2F32AVX2(y, w, x *float32, cols, quads, wstride, xstride, ystride, add int)
// quads times four rows, wstride bytes apart, with each of two vectors, xstride bytes
// apart; results of the second are ystride bytes from those of the first.
TEXT ·tile4x2F32AVX2(SB), NOSPLIT, $0-72
	FLUSH
	MOVQ y+0(FP), DI
	MOVQ w+8(FP), SI
	MOVQ quads+32(FP), BX
	MOVQ wstride+40(FP), R12
	LEAQ (R12)(R12*2), R13
	MOVQ xstride+48(FP), R10
	MOVQ ystride+56(FP), R11

quad:
	MOVQ SI, R8
	MOVQ x+16(FP), DX
	MOVQ cols+24(FP), CX
	CLEAR8

loop:
	CMPQ        CX, $8
	JLT         tail
	VMOVUPS     (R8), Y8
	VMOVUPS     (R8)(R12*1), Y9
	VMOVUPS     (R8)(R12*2), Y10
	VMOVUPS     (R8)(R13*1), Y11
	VMOVUPS     (DX), Y12
	VMOVUPS     (DX)(R10*1), Y13
	VFMADD231PS Y8, Y12, Y0
	VFMADD231PS Y9, Y12, Y1
	VFMADD231PS Y10, Y12, Y2
	VFMADD231PS Y11, Y12, Y3
	VFMADD231PS Y8, Y13, Y4
	VFMADD231PS Y9, Y13, Y5
	VFMADD231PS Y10, Y13, Y6
	VFMADD231PS Y11, Y13, Y7
	ADDQ        $32, DX
	ADDQ        $32, R8
	SUBQ        $8, CX
	JMP         loop

tail:
	TESTQ       CX, CX
	JZ          sum
	TAILMASK(Y15)
	VMASKMOVPS  (R8), Y15, Y8
	VMASKMOVPS  (R8)(R12*1), Y15, Y9
	VMASKMOVPS  (R8)(R12*2), Y15, Y10
	VMASKMOVPS  (R8)(R13*1), Y15, Y11
	VMASKMOVPS  (DX), Y15, Y12
	VMASKMOVPS  (DX)(R10*1), Y15, Y13
	VFMADD231PS Y8, Y12, Y0
	VFMADD231PS Y9, Y12, Y1
	VFMADD231PS Y10, Y12, Y2
	VFMADD231PS Y11, Y12, Y3
	VFMADD231PS Y8, Y13, Y4
	VFMADD231PS Y9, Y13, Y5
	VFMADD231PS Y10, Y13, Y6
	VFMADD231PS Y11, Y13, Y7

sum:
	SUMS8
	VEXTRACTF128 $1, Y0, X1
	CMPQ         add+64(FP), $0
	JE           store
	VADDPS       (DI), X0, X0
	VADDPS       (DI)(R11*1), X1, X1

store:
	VMOVUPS X0, (DI)
	VMOVUPS X1, (DI)(R11*1)
	ADDQ    $16, DI
	LEAQ    (SI)(R12*4), SI
	DECQ    BX
	JNZ     quad
	VZEROUPPER
	KEEP
	RET
