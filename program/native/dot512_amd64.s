#include "textflag.h"
#include "floats_amd64.h"
#include "elem_amd64.h"

// A mask of the lowest CX (1 to 15) lanes in K1.
#define TAILMASK16 \
	MOVL  $1, AX  \
	SHLL  CX, AX  \
	DECL  AX      \
	KMOVW AX, K1

// func dotRowsAVX512(y, m, x []float32, stride int)
// As dotRowsAVX2, in two times sixteen lanes.
TEXT ·dotRowsAVX512(SB), NOSPLIT, $0-80
	FLUSH
	MOVQ y_base+0(FP), DI
	MOVQ y_len+8(FP), R8
	MOVQ m_base+24(FP), SI
	MOVQ x_base+48(FP), DX
	MOVQ stride+72(FP), R9
	SHLQ $2, R9

rows4:
	CMPQ R8, $4
	JLT  rows1
	MOVQ SI, R10
	LEAQ (R10)(R9*1), R11
	LEAQ (R11)(R9*1), R12
	LEAQ (R12)(R9*1), R13
	MOVQ x_len+56(FP), CX
	XORL BX, BX

	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1
	VPXORD Z2, Z2, Z2
	VPXORD Z3, Z3, Z3
	VPXORD Z4, Z4, Z4
	VPXORD Z5, Z5, Z5
	VPXORD Z6, Z6, Z6
	VPXORD Z7, Z7, Z7

loop32:
	CMPQ        CX, $32
	JLT         loop16
	VMOVUPS     (DX)(BX*1), Z8
	VMOVUPS     64(DX)(BX*1), Z9
	VFMADD231PS (R10)(BX*1), Z8, Z0
	VFMADD231PS 64(R10)(BX*1), Z9, Z1
	VFMADD231PS (R11)(BX*1), Z8, Z2
	VFMADD231PS 64(R11)(BX*1), Z9, Z3
	VFMADD231PS (R12)(BX*1), Z8, Z4
	VFMADD231PS 64(R12)(BX*1), Z9, Z5
	VFMADD231PS (R13)(BX*1), Z8, Z6
	VFMADD231PS 64(R13)(BX*1), Z9, Z7
	ADDQ        $128, BX
	SUBQ        $32, CX
	JMP         loop32

loop16:
	CMPQ        CX, $16
	JLT         tail
	VMOVUPS     (DX)(BX*1), Z8
	VFMADD231PS (R10)(BX*1), Z8, Z0
	VFMADD231PS (R11)(BX*1), Z8, Z2
	VFMADD231PS (R12)(BX*1), Z8, Z4
	VFMADD231PS (R13)(BX*1), Z8, Z6
	ADDQ        $64, BX
	SUBQ        $16, CX

tail:
	TESTQ       CX, CX
	JZ          sum
	TAILMASK16
	VMOVUPS.Z   (DX)(BX*1), K1, Z8
	VMOVUPS.Z   (R10)(BX*1), K1, Z9
	VFMADD231PS Z9, Z8, Z1
	VMOVUPS.Z   (R11)(BX*1), K1, Z9
	VFMADD231PS Z9, Z8, Z3
	VMOVUPS.Z   (R12)(BX*1), K1, Z9
	VFMADD231PS Z9, Z8, Z5
	VMOVUPS.Z   (R13)(BX*1), K1, Z9
	VFMADD231PS Z9, Z8, Z7

sum:
	VADDPS        Z1, Z0, Z0
	VADDPS        Z3, Z2, Z2
	VADDPS        Z5, Z4, Z4
	VADDPS        Z7, Z6, Z6
	VEXTRACTF64X4 $1, Z0, Y1
	VADDPS        Y1, Y0, Y0
	VEXTRACTF64X4 $1, Z2, Y3
	VADDPS        Y3, Y2, Y2
	VEXTRACTF64X4 $1, Z4, Y5
	VADDPS        Y5, Y4, Y4
	VEXTRACTF64X4 $1, Z6, Y7
	VADDPS        Y7, Y6, Y6
	VHADDPS       Y2, Y0, Y0
	VHADDPS       Y6, Y4, Y4
	VHADDPS       Y4, Y0, Y0
	VEXTRACTF128  $1, Y0, X1
	VADDPS        X1, X0, X0
	VMOVUPS       X0, (DI)
	ADDQ          $16, DI
	LEAQ          (SI)(R9*4), SI
	SUBQ          $4, R8
	JMP           rows4

rows1:
	TESTQ  R8, R8
	JZ     done
	MOVQ   x_len+56(FP), CX
	XORL   BX, BX
	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1

one32:
	CMPQ        CX, $32
	JLT         one16
	VMOVUPS     (DX)(BX*1), Z8
	VMOVUPS     64(DX)(BX*1), Z9
	VFMADD231PS (SI)(BX*1), Z8, Z0
	VFMADD231PS 64(SI)(BX*1), Z9, Z1
	ADDQ        $128, BX
	SUBQ        $32, CX
	JMP         one32

one16:
	CMPQ        CX, $16
	JLT         onetail
	VMOVUPS     (DX)(BX*1), Z8
	VFMADD231PS (SI)(BX*1), Z8, Z0
	ADDQ        $64, BX
	SUBQ        $16, CX

onetail:
	TESTQ       CX, CX
	JZ          onesum
	TAILMASK16
	VMOVUPS.Z   (DX)(BX*1), K1, Z8
	VMOVUPS.Z   (SI)(BX*1), K1, Z9
	VFMADD231PS Z9, Z8, Z1

onesum:
	VADDPS        Z1, Z0, Z0
	VEXTRACTF64X4 $1, Z0, Y1
	VADDPS        Y1, Y0, Y0
	SUM8
	VMOVSS        X0, (DI)
	ADDQ          $4, DI
	ADDQ          R9, SI
	DECQ          R8
	JMP           rows1

done:
	VZEROUPPER
	KEEP
	RET
