#include "textflag.h"
#include "floats_amd64.h"

// Tiles of a matrix product: c[r][j] (+)= the sum over i < k of a[r][i] * b[i][j], for
// the rows and columns in the name. lda, ldb and ldc are the lengths of rows in
// elements. add 0 overwrites c. Each element is one chain of fused additions in the
// order of i, whatever the tile: results do not depend on how a product is cut.

// func gemm6x16AVX2(k int, a *float32, lda int, b *float32, ldb int, c *float32, ldc int, add int)
TEXT ·gemm6x16AVX2(SB), NOSPLIT, $0-64
	FLUSH
	MOVQ   k+0(FP), CX
	MOVQ   a+8(FP), SI
	MOVQ   lda+16(FP), R11
	MOVQ   b+24(FP), DI
	MOVQ   ldb+32(FP), R12
	MOVQ   c+40(FP), DX
	MOVQ   ldc+48(FP), R13
	SHLQ   $2, R11
	SHLQ   $2, R12
	SHLQ   $2, R13
	LEAQ   (SI)(R11*2), R8
	ADDQ   R11, R8
	CMPQ   add+56(FP), $0
	JNE    load
	VXORPS Y4, Y4, Y4
	VXORPS Y5, Y5, Y5
	VXORPS Y6, Y6, Y6
	VXORPS Y7, Y7, Y7
	VXORPS Y8, Y8, Y8
	VXORPS Y9, Y9, Y9
	VXORPS Y10, Y10, Y10
	VXORPS Y11, Y11, Y11
	VXORPS Y12, Y12, Y12
	VXORPS Y13, Y13, Y13
	VXORPS Y14, Y14, Y14
	VXORPS Y15, Y15, Y15
	JMP    loop

load:
	MOVQ    DX, AX
	VMOVUPS (AX), Y4
	VMOVUPS 32(AX), Y5
	ADDQ    R13, AX
	VMOVUPS (AX), Y6
	VMOVUPS 32(AX), Y7
	ADDQ    R13, AX
	VMOVUPS (AX), Y8
	VMOVUPS 32(AX), Y9
	ADDQ    R13, AX
	VMOVUPS (AX), Y10
	VMOVUPS 32(AX), Y11
	ADDQ    R13, AX
	VMOVUPS (AX), Y12
	VMOVUPS 32(AX), Y13
	ADDQ    R13, AX
	VMOVUPS (AX), Y14
	VMOVUPS 32(AX), Y15

loop:
	TESTQ        CX, CX
	JZ           store
	VMOVUPS      (DI), Y0
	VMOVUPS      32(DI), Y1
	VBROADCASTSS (SI), Y2
	VFMADD231PS  Y0, Y2, Y4
	VFMADD231PS  Y1, Y2, Y5
	VBROADCASTSS (SI)(R11*1), Y3
	VFMADD231PS  Y0, Y3, Y6
	VFMADD231PS  Y1, Y3, Y7
	VBROADCASTSS (SI)(R11*2), Y2
	VFMADD231PS  Y0, Y2, Y8
	VFMADD231PS  Y1, Y2, Y9
	VBROADCASTSS (R8), Y3
	VFMADD231PS  Y0, Y3, Y10
	VFMADD231PS  Y1, Y3, Y11
	VBROADCASTSS (R8)(R11*1), Y2
	VFMADD231PS  Y0, Y2, Y12
	VFMADD231PS  Y1, Y2, Y13
	VBROADCASTSS (R8)(R11*2), Y3
	VFMADD231PS  Y0, Y3, Y14
	VFMADD231PS  Y1, Y3, Y15
	ADDQ         $4, SI
	ADDQ         $4, R8
	ADDQ         R12, DI
	DECQ         CX
	JMP          loop

store:
	VMOVUPS Y4, (DX)
	VMOVUPS Y5, 32(DX)
	ADDQ    R13, DX
	VMOVUPS Y6, (DX)
	VMOVUPS Y7, 32(DX)
	ADDQ    R13, DX
	VMOVUPS Y8, (DX)
	VMOVUPS Y9, 32(DX)
	ADDQ    R13, DX
	VMOVUPS Y10, (DX)
	VMOVUPS Y11, 32(DX)
	ADDQ    R13, DX
	VMOVUPS Y12, (DX)
	VMOVUPS Y13, 32(DX)
	ADDQ    R13, DX
	VMOVUPS Y14, (DX)
	VMOVUPS Y15, 32(DX)
	VZEROUPPER
	KEEP
	RET

// func gemm2x16AVX2(k int, a *float32, lda int, b *float32, ldb int, c *float32, ldc int, add int)
TEXT ·gemm2x16AVX2(SB), NOSPLIT, $0-64
	FLUSH
	MOVQ   k+0(FP), CX
	MOVQ   a+8(FP), SI
	MOVQ   lda+16(FP), R11
	MOVQ   b+24(FP), DI
	MOVQ   ldb+32(FP), R12
	MOVQ   c+40(FP), DX
	MOVQ   ldc+48(FP), R13
	SHLQ   $2, R11
	SHLQ   $2, R12
	SHLQ   $2, R13
	CMPQ   add+56(FP), $0
	JNE    load
	VXORPS Y4, Y4, Y4
	VXORPS Y5, Y5, Y5
	VXORPS Y6, Y6, Y6
	VXORPS Y7, Y7, Y7
	JMP    loop

load:
	MOVQ    DX, AX
	VMOVUPS (AX), Y4
	VMOVUPS 32(AX), Y5
	ADDQ    R13, AX
	VMOVUPS (AX), Y6
	VMOVUPS 32(AX), Y7

loop:
	TESTQ        CX, CX
	JZ           store
	VMOVUPS      (DI), Y0
	VMOVUPS      32(DI), Y1
	VBROADCASTSS (SI), Y2
	VFMADD231PS  Y0, Y2, Y4
	VFMADD231PS  Y1, Y2, Y5
	VBROADCASTSS (SI)(R11*1), Y3
	VFMADD231PS  Y0, Y3, Y6
	VFMADD231PS  Y1, Y3, Y7
	ADDQ         $4, SI
	ADDQ         R12, DI
	DECQ         CX
	JMP          loop

store:
	VMOVUPS Y4, (DX)
	VMOVUPS Y5, 32(DX)
	ADDQ    R13, DX
	VMOVUPS Y6, (DX)
	VMOVUPS Y7, 32(DX)
	VZEROUPPER
	KEEP
	RET

// func gemm1x16AVX2(k int, a *float32, lda int, b *float32, ldb int, c *float32, ldc int, add int)
TEXT ·gemm1x16AVX2(SB), NOSPLIT, $0-64
	FLUSH
	MOVQ   k+0(FP), CX
	MOVQ   a+8(FP), SI
	MOVQ   lda+16(FP), R11
	MOVQ   b+24(FP), DI
	MOVQ   ldb+32(FP), R12
	MOVQ   c+40(FP), DX
	MOVQ   ldc+48(FP), R13
	SHLQ   $2, R11
	SHLQ   $2, R12
	SHLQ   $2, R13
	CMPQ   add+56(FP), $0
	JNE    load
	VXORPS Y4, Y4, Y4
	VXORPS Y5, Y5, Y5
	JMP    loop

load:
	MOVQ    DX, AX
	VMOVUPS (AX), Y4
	VMOVUPS 32(AX), Y5

loop:
	TESTQ        CX, CX
	JZ           store
	VMOVUPS      (DI), Y0
	VMOVUPS      32(DI), Y1
	VBROADCASTSS (SI), Y2
	VFMADD231PS  Y0, Y2, Y4
	VFMADD231PS  Y1, Y2, Y5
	ADDQ         $4, SI
	ADDQ         R12, DI
	DECQ         CX
	JMP          loop

store:
	VMOVUPS Y4, (DX)
	VMOVUPS Y5, 32(DX)
	VZEROUPPER
	KEEP
	RET
