#include "textflag.h"
#include "floats_amd64.h"
#include "elem_amd64.h"

// func sumAVX2(x []float32, subnormals subnormals) float32
TEXT ·sumAVX2(SB), NOSPLIT, $0-36
	LDMXCSR subnormals+24(FP)
	MOVQ   x_base+0(FP), SI
	MOVQ   x_len+8(FP), CX
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3

loop32:
	CMPQ   CX, $32
	JLT    loop8
	VADDPS (SI), Y0, Y0
	VADDPS 32(SI), Y1, Y1
	VADDPS 64(SI), Y2, Y2
	VADDPS 96(SI), Y3, Y3
	ADDQ   $128, SI
	SUBQ   $32, CX
	JMP    loop32

loop8:
	CMPQ   CX, $8
	JLT    tail
	VADDPS (SI), Y0, Y0
	ADDQ   $32, SI
	SUBQ   $8, CX
	JMP    loop8

tail:
	TESTQ      CX, CX
	JZ         done
	TAILMASK(Y6)
	VMASKMOVPS (SI), Y6, Y4
	VADDPS     Y4, Y1, Y1

done:
	VADDPS Y1, Y0, Y0
	VADDPS Y3, Y2, Y2
	VADDPS Y2, Y0, Y0
	SUM8
	VMOVSS X0, ret+32(FP)
	VZEROUPPER
	KEEP
	RET

// func sumSquaresAVX2(x []float32, mean float32, subnormals subnormals) float32
// The sum of (x-mean)².
TEXT ·sumSquaresAVX2(SB), NOSPLIT, $0-36
	LDMXCSR subnormals+28(FP)
	MOVQ         x_base+0(FP), SI
	MOVQ         x_len+8(FP), CX
	VBROADCASTSS mean+24(FP), Y5
	VXORPS       Y0, Y0, Y0
	VXORPS       Y1, Y1, Y1
	VXORPS       Y2, Y2, Y2
	VXORPS       Y3, Y3, Y3

loop32:
	CMPQ        CX, $32
	JLT         loop8
	VMOVUPS     (SI), Y8
	VMOVUPS     32(SI), Y9
	VMOVUPS     64(SI), Y10
	VMOVUPS     96(SI), Y11
	VSUBPS      Y5, Y8, Y8
	VSUBPS      Y5, Y9, Y9
	VSUBPS      Y5, Y10, Y10
	VSUBPS      Y5, Y11, Y11
	VFMADD231PS Y8, Y8, Y0
	VFMADD231PS Y9, Y9, Y1
	VFMADD231PS Y10, Y10, Y2
	VFMADD231PS Y11, Y11, Y3
	ADDQ        $128, SI
	SUBQ        $32, CX
	JMP         loop32

loop8:
	CMPQ        CX, $8
	JLT         tail
	VMOVUPS     (SI), Y8
	VSUBPS      Y5, Y8, Y8
	VFMADD231PS Y8, Y8, Y0
	ADDQ        $32, SI
	SUBQ        $8, CX
	JMP         loop8

tail:
	TESTQ       CX, CX
	JZ          done
	TAILMASK(Y6)
	VMASKMOVPS  (SI), Y6, Y8
	VSUBPS      Y5, Y8, Y8
	VANDPS      Y6, Y8, Y8
	VFMADD231PS Y8, Y8, Y1

done:
	VADDPS Y1, Y0, Y0
	VADDPS Y3, Y2, Y2
	VADDPS Y2, Y0, Y0
	SUM8
	VMOVSS X0, ret+32(FP)
	VZEROUPPER
	KEEP
	RET

// func maxAVX2(x []float32) float32
// The largest of x, -Inf if there is none. NaN is passed over: of two operands the
// instruction gives the second if one is NaN, and that is what was found before.
TEXT ·maxAVX2(SB), NOSPLIT, $0-28
	MOVQ    x_base+0(FP), SI
	MOVQ    x_len+8(FP), CX
	LEAQ    ·constants(SB), R8
	VMOVUPS 416(R8), Y0
	VMOVAPS Y0, Y1
	VMOVAPS Y0, Y2
	VMOVAPS Y0, Y3

loop32:
	CMPQ    CX, $32
	JLT     loop8
	VMOVUPS (SI), Y8
	VMOVUPS 32(SI), Y9
	VMOVUPS 64(SI), Y10
	VMOVUPS 96(SI), Y11
	VMAXPS  Y0, Y8, Y0
	VMAXPS  Y1, Y9, Y1
	VMAXPS  Y2, Y10, Y2
	VMAXPS  Y3, Y11, Y3
	ADDQ    $128, SI
	SUBQ    $32, CX
	JMP     loop32

loop8:
	CMPQ    CX, $8
	JLT     tail
	VMOVUPS (SI), Y8
	VMAXPS  Y0, Y8, Y0
	ADDQ    $32, SI
	SUBQ    $8, CX
	JMP     loop8

tail:
	TESTQ      CX, CX
	JZ         done
	TAILMASK(Y6)
	VMASKMOVPS (SI), Y6, Y8
	VMOVUPS    416(R8), Y9
	VBLENDVPS  Y6, Y8, Y9, Y8
	VMAXPS     Y1, Y8, Y1

done:
	VMAXPS       Y1, Y0, Y0
	VMAXPS       Y3, Y2, Y2
	VMAXPS       Y2, Y0, Y0
	VEXTRACTF128 $1, Y0, X1
	VMAXPS       X1, X0, X0
	VPERMILPS    $0x4e, X0, X1
	VMAXPS       X1, X0, X0
	VPERMILPS    $0xb1, X0, X1
	VMAXSS       X1, X0, X0
	VMOVSS       X0, ret+24(FP)
	VZEROUPPER
	RET

// func findAboveAVX2(x []float32, t float32) int
// The first index with x > t, or -1.
TEXT ·findAboveAVX2(SB), NOSPLIT, $0-40
	MOVQ         x_base+0(FP), SI
	MOVQ         x_len+8(FP), CX
	MOVQ         SI, DX
	VBROADCASTSS t+24(FP), Y5

loop32:
	CMPQ      CX, $32
	JLT       loop8
	VCMPPS    $0x11, (SI), Y5, Y0   // t < x, false for NaN
	VCMPPS    $0x11, 32(SI), Y5, Y1
	VCMPPS    $0x11, 64(SI), Y5, Y2
	VCMPPS    $0x11, 96(SI), Y5, Y3
	VORPS     Y1, Y0, Y0
	VORPS     Y3, Y2, Y2
	VORPS     Y2, Y0, Y0
	VMOVMSKPS Y0, AX
	TESTL     AX, AX
	JNZ       loop8
	ADDQ      $128, SI
	SUBQ      $32, CX
	JMP       loop32

loop8:
	CMPQ      CX, $8
	JLT       tail
	VCMPPS    $0x11, (SI), Y5, Y0
	VMOVMSKPS Y0, AX
	TESTL     AX, AX
	JNZ       found
	ADDQ      $32, SI
	SUBQ      $8, CX
	JMP       loop8

tail:
	TESTQ      CX, CX
	JZ         none
	TAILMASK(Y6)
	VMASKMOVPS (SI), Y6, Y0
	VCMPPS     $0x11, Y0, Y5, Y0
	VANDPS     Y6, Y0, Y0
	VMOVMSKPS  Y0, AX
	TESTL      AX, AX
	JNZ        found

none:
	MOVQ $-1, ret+32(FP)
	VZEROUPPER
	RET

found:
	BSFL AX, AX
	SUBQ DX, SI
	SHRQ $2, SI
	ADDQ SI, AX
	MOVQ AX, ret+32(FP)
	VZEROUPPER
	RET

// func firstNumberAVX2(x []float32) int
// The first index of what is no NaN, or -1.
TEXT ·firstNumberAVX2(SB), NOSPLIT, $0-32
	MOVQ x_base+0(FP), SI
	MOVQ x_len+8(FP), CX
	MOVQ SI, DX

loop32:
	CMPQ      CX, $32
	JLT       loop8
	VMOVUPS   (SI), Y0
	VMOVUPS   32(SI), Y1
	VMOVUPS   64(SI), Y2
	VMOVUPS   96(SI), Y3
	VCMPPS    $7, Y0, Y0, Y0
	VCMPPS    $7, Y1, Y1, Y1
	VCMPPS    $7, Y2, Y2, Y2
	VCMPPS    $7, Y3, Y3, Y3
	VORPS     Y1, Y0, Y0
	VORPS     Y3, Y2, Y2
	VORPS     Y2, Y0, Y0
	VMOVMSKPS Y0, AX
	TESTL     AX, AX
	JNZ       loop8
	ADDQ      $128, SI
	SUBQ      $32, CX
	JMP       loop32

loop8:
	CMPQ      CX, $8
	JLT       tail
	VMOVUPS   (SI), Y0
	VCMPPS    $7, Y0, Y0, Y0
	VMOVMSKPS Y0, AX
	TESTL     AX, AX
	JNZ       found
	ADDQ      $32, SI
	SUBQ      $8, CX
	JMP       loop8

tail:
	TESTQ      CX, CX
	JZ         none
	TAILMASK(Y6)
	VMASKMOVPS (SI), Y6, Y0
	VCMPPS     $7, Y0, Y0, Y0
	VANDPS     Y6, Y0, Y0
	VMOVMSKPS  Y0, AX
	TESTL      AX, AX
	JNZ        found

none:
	MOVQ $-1, ret+24(FP)
	VZEROUPPER
	RET

found:
	BSFL AX, AX
	SUBQ DX, SI
	SHRQ $2, SI
	ADDQ SI, AX
	MOVQ AX, ret+24(FP)
	VZEROUPPER
	RET
