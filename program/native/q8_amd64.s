#include "textflag.h"
#include "floats_amd64.h"
#include "elem_amd64.h"

// GGUF q8_0: blocks of 34 bytes, an f16 scale and 32 signed bytes. The scales are
// looked up in a table of all halves: the units that would convert them are the ones
// that convert the bytes.

// func dotRowsQ8AVX2(y []float32, w []byte, x []float32)
// y[r] = the dot product of x, whole blocks, and row r of w, rows one after the
// other. Even and odd blocks are added up apart, each in eight lanes.
TEXT ·dotRowsQ8AVX2(SB), NOSPLIT, $0-72
	FLUSH
	MOVQ y_base+0(FP), DI
	MOVQ y_len+8(FP), R8
	MOVQ w_base+24(FP), SI
	LEAQ ·halves(SB), R10

row:
	TESTQ  R8, R8
	JZ     done
	MOVQ   x_base+48(FP), DX
	MOVQ   x_len+56(FP), CX
	SHRQ   $5, CX
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1

pair:
	CMPQ CX, $2
	JLT  single

	VPMOVSXBD    2(SI), Y4
	VPMOVSXBD    10(SI), Y5
	VPMOVSXBD    18(SI), Y6
	VPMOVSXBD    26(SI), Y7
	MOVWLZX      (SI), AX
	VCVTDQ2PS    Y4, Y4
	VCVTDQ2PS    Y5, Y5
	VCVTDQ2PS    Y6, Y6
	VCVTDQ2PS    Y7, Y7
	VBROADCASTSS (R10)(AX*4), Y8
	VMULPS       (DX), Y4, Y4
	VMULPS       32(DX), Y5, Y5
	VFMADD231PS  64(DX), Y6, Y4
	VFMADD231PS  96(DX), Y7, Y5
	VADDPS       Y5, Y4, Y4
	VFMADD231PS  Y8, Y4, Y0
	VPMOVSXBD    36(SI), Y9
	VPMOVSXBD    44(SI), Y10
	VPMOVSXBD    52(SI), Y11
	VPMOVSXBD    60(SI), Y12
	MOVWLZX      34(SI), BX
	VCVTDQ2PS    Y9, Y9
	VCVTDQ2PS    Y10, Y10
	VCVTDQ2PS    Y11, Y11
	VCVTDQ2PS    Y12, Y12
	VBROADCASTSS (R10)(BX*4), Y13
	VMULPS       128(DX), Y9, Y9
	VMULPS       160(DX), Y10, Y10
	VFMADD231PS  192(DX), Y11, Y9
	VFMADD231PS  224(DX), Y12, Y10
	VADDPS       Y10, Y9, Y9
	VFMADD231PS  Y13, Y9, Y1
	ADDQ         $68, SI
	ADDQ         $256, DX
	SUBQ         $2, CX
	JMP          pair

single:
	TESTQ        CX, CX
	JZ           sum
	VPMOVSXBD    2(SI), Y4
	VPMOVSXBD    10(SI), Y5
	VPMOVSXBD    18(SI), Y6
	VPMOVSXBD    26(SI), Y7
	MOVWLZX      (SI), AX
	VCVTDQ2PS    Y4, Y4
	VCVTDQ2PS    Y5, Y5
	VCVTDQ2PS    Y6, Y6
	VCVTDQ2PS    Y7, Y7
	VBROADCASTSS (R10)(AX*4), Y8
	VMULPS       (DX), Y4, Y4
	VMULPS       32(DX), Y5, Y5
	VFMADD231PS  64(DX), Y6, Y4
	VFMADD231PS  96(DX), Y7, Y5
	VADDPS       Y5, Y4, Y4
	VFMADD231PS  Y8, Y4, Y0
	ADDQ         $34, SI

sum:
	VADDPS Y1, Y0, Y0
	SUM8
	VMOVSS X0, (DI)
	ADDQ   $4, DI
	DECQ   R8
	JMP    row

done:
	VZEROUPPER
	KEEP
	RET

// func dotRowsQ8AVX512(y []float32, w []byte, x []float32)
// As dotRowsQ8AVX2, in sixteen lanes.
TEXT ·dotRowsQ8AVX512(SB), NOSPLIT, $0-72
	FLUSH
	MOVQ y_base+0(FP), DI
	MOVQ y_len+8(FP), R8
	MOVQ w_base+24(FP), SI
	LEAQ ·halves(SB), R10

row:
	TESTQ  R8, R8
	JZ     done
	MOVQ   x_base+48(FP), DX
	MOVQ   x_len+56(FP), CX
	SHRQ   $5, CX
	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1

pair:
	CMPQ             CX, $2
	JLT              single
	VPMOVSXBD        2(SI), Z4
	VPMOVSXBD        18(SI), Z5
	MOVWLZX          (SI), AX
	VCVTDQ2PS        Z4, Z4
	VCVTDQ2PS        Z5, Z5
	VMULPS           (DX), Z4, Z4
	VFMADD231PS      64(DX), Z5, Z4
	VFMADD231PS.BCST (R10)(AX*4), Z4, Z0
	VPMOVSXBD        36(SI), Z7
	VPMOVSXBD        52(SI), Z8
	MOVWLZX          34(SI), BX
	VCVTDQ2PS        Z7, Z7
	VCVTDQ2PS        Z8, Z8
	VMULPS           128(DX), Z7, Z7
	VFMADD231PS      192(DX), Z8, Z7
	VFMADD231PS.BCST (R10)(BX*4), Z7, Z1
	ADDQ             $68, SI
	ADDQ             $256, DX
	SUBQ             $2, CX
	JMP              pair

single:
	TESTQ            CX, CX
	JZ               sum
	VPMOVSXBD        2(SI), Z4
	VPMOVSXBD        18(SI), Z5
	MOVWLZX          (SI), AX
	VCVTDQ2PS        Z4, Z4
	VCVTDQ2PS        Z5, Z5
	VMULPS           (DX), Z4, Z4
	VFMADD231PS      64(DX), Z5, Z4
	VFMADD231PS.BCST (R10)(AX*4), Z4, Z0
	ADDQ             $34, SI

sum:
	VADDPS        Z1, Z0, Z0
	VEXTRACTF64X4 $1, Z0, Y1
	VADDPS        Y1, Y0, Y0
	SUM8
	VMOVSS        X0, (DI)
	ADDQ          $4, DI
	DECQ          R8
	JMP           row

done:
	VZEROUPPER
	KEEP
	RET

// func expandQ8AVX2(dst []float32, w []byte)
// dst, whole blocks, = the values of w.
TEXT ·expandQ8AVX2(SB), NOSPLIT, $0-48
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ w_base+24(FP), SI
	SHRQ $5, CX

block:
	TESTQ        CX, CX
	JZ           done
	VPBROADCASTW (SI), X4
	VCVTPH2PS    X4, Y4
	VPMOVSXBD    2(SI), Y0
	VCVTDQ2PS    Y0, Y0
	VMULPS       Y4, Y0, Y0
	VMOVUPS      Y0, (DI)
	VPMOVSXBD    10(SI), Y1
	VCVTDQ2PS    Y1, Y1
	VMULPS       Y4, Y1, Y1
	VMOVUPS      Y1, 32(DI)
	VPMOVSXBD    18(SI), Y2
	VCVTDQ2PS    Y2, Y2
	VMULPS       Y4, Y2, Y2
	VMOVUPS      Y2, 64(DI)
	VPMOVSXBD    26(SI), Y3
	VCVTDQ2PS    Y3, Y3
	VMULPS       Y4, Y3, Y3
	VMOVUPS      Y3, 96(DI)
	ADDQ         $34, SI
	ADDQ         $128, DI
	DECQ         CX
	JMP          block

done:
	VZEROUPPER
	RET
