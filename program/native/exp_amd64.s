#include "textflag.h"
#include "floats_amd64.h"
#include "elem_amd64.h"

// func expSumAVX2(dst, x []float32, sub float32) float32
// dst = e^(x-sub); returns the sum of dst.
TEXT ·expSumAVX2(SB), NOSPLIT, $0-60
	FLUSH
	MOVQ         dst_base+0(FP), DI
	MOVQ         dst_len+8(FP), CX
	MOVQ         x_base+24(FP), SI
	VBROADCASTSS sub+48(FP), Y4
	LEAQ         ·constants(SB), R8
	VXORPS       Y5, Y5, Y5

loop:
	CMPQ    CX, $8
	JLT     tail
	VMOVUPS (SI), Y0
	VSUBPS  Y4, Y0, Y0
	EXP
	VMOVUPS Y0, (DI)
	VADDPS  Y0, Y5, Y5
	ADDQ    $32, SI
	ADDQ    $32, DI
	SUBQ    $8, CX
	JMP     loop

tail:
	TESTQ      CX, CX
	JZ         done
	TAILMASK(Y6)
	VMASKMOVPS (SI), Y6, Y0
	VSUBPS     Y4, Y0, Y0
	EXP
	VMASKMOVPS Y0, Y6, (DI)
	VANDPS     Y6, Y0, Y0
	VADDPS     Y0, Y5, Y5

done:
	VMOVAPS Y5, Y0
	SUM8
	VMOVSS  X0, ret+56(FP)
	VZEROUPPER
	KEEP
	RET

// func swigluAVX2(dst, a, b []float32)
// dst = a / (1 + e^-a) * b
TEXT ·swigluAVX2(SB), NOSPLIT, $0-72
	FLUSH
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ a_base+24(FP), SI
	MOVQ b_base+48(FP), DX
	LEAQ ·constants(SB), R8

loop:
	CMPQ    CX, $8
	JLT     tail
	VMOVUPS (SI), Y4
	VXORPS  448(R8), Y4, Y0
	EXP
	VADDPS  352(R8), Y0, Y0
	VDIVPS  Y0, Y4, Y0
	VMULPS  (DX), Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DX
	ADDQ    $32, DI
	SUBQ    $8, CX
	JMP     loop

tail:
	TESTQ      CX, CX
	JZ         done
	TAILMASK(Y6)
	VMASKMOVPS (SI), Y6, Y4
	VMASKMOVPS (DX), Y6, Y5
	VXORPS     448(R8), Y4, Y0
	EXP
	VADDPS     352(R8), Y0, Y0
	VDIVPS     Y0, Y4, Y0
	VMULPS     Y5, Y0, Y0
	VMASKMOVPS Y0, Y6, (DI)

done:
	VZEROUPPER
	KEEP
	RET
