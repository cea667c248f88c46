#include "textflag.h"
#include "floats_amd64.h"
#include "elem_amd64.h"

// Elementwise bodies, eight lanes at a time; the last, partial eight are done with
// the same instructions under a mask. A store under a mask takes longer than all the rest
// of a short vector, so in the shortest bodies four lanes go without. Lengths are of the
// destination.

// func fillAVX2(dst []uint32, v uint32)
TEXT ·fillAVX2(SB), NOSPLIT, $0-28
	MOVQ         dst_base+0(FP), DI
	MOVQ         dst_len+8(FP), CX
	VBROADCASTSS v+24(FP), Y0

loop:
	CMPQ    CX, $8
	JLT     four
	VMOVUPS Y0, (DI)
	ADDQ    $32, DI
	SUBQ    $8, CX
	JMP     loop

four:
	CMPQ    CX, $4
	JLT     tail
	VMOVUPS X0, (DI)
	ADDQ    $16, DI
	SUBQ    $4, CX

tail:
	TESTQ      CX, CX
	JZ         done
	TAILMASK(Y15)
	VMASKMOVPS Y0, Y15, (DI)

done:
	VZEROUPPER
	RET

// func addAVX2(dst, a, b []float32)
TEXT ·addAVX2(SB), NOSPLIT, $0-72
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ a_base+24(FP), SI
	MOVQ b_base+48(FP), DX

loop:
	CMPQ    CX, $8
	JLT     four
	VMOVUPS (SI), Y0
	VMOVUPS (DX), Y1
	VADDPS  Y1, Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DX
	ADDQ    $32, DI
	SUBQ    $8, CX
	JMP     loop

four:
	CMPQ    CX, $4
	JLT     tail
	VMOVUPS (SI), X0
	VADDPS  (DX), X0, X0
	VMOVUPS X0, (DI)
	ADDQ    $16, SI
	ADDQ    $16, DX
	ADDQ    $16, DI
	SUBQ    $4, CX

tail:
	TESTQ      CX, CX
	JZ         done
	TAILMASK(Y15)
	VMASKMOVPS (SI), Y15, Y0
	VMASKMOVPS (DX), Y15, Y1
	VADDPS     Y1, Y0, Y0
	VMASKMOVPS Y0, Y15, (DI)

done:
	VZEROUPPER
	RET

// func saxpyAVX2(dst, x []float32, a float32)
// The product is rounded before the sum, as the program does.
TEXT ·saxpyAVX2(SB), NOSPLIT, $0-52
	MOVQ         dst_base+0(FP), DI
	MOVQ         dst_len+8(FP), CX
	MOVQ         x_base+24(FP), SI
	VBROADCASTSS a+48(FP), Y2

loop:
	CMPQ    CX, $8
	JLT     four
	VMOVUPS (SI), Y0
	VMULPS  Y2, Y0, Y0
	VADDPS  (DI), Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DI
	SUBQ    $8, CX
	JMP     loop

four:
	CMPQ    CX, $4
	JLT     tail
	VMOVUPS (SI), X0
	VMULPS  X2, X0, X0
	VADDPS  (DI), X0, X0
	VMOVUPS X0, (DI)
	ADDQ    $16, SI
	ADDQ    $16, DI
	SUBQ    $4, CX

tail:
	TESTQ      CX, CX
	JZ         done
	TAILMASK(Y15)
	VMASKMOVPS (SI), Y15, Y0
	VMASKMOVPS (DI), Y15, Y1
	VMULPS     Y2, Y0, Y0
	VADDPS     Y1, Y0, Y0
	VMASKMOVPS Y0, Y15, (DI)

done:
	VZEROUPPER
	RET

// func scaleAVX2(dst, x []float32, s float32)
TEXT ·scaleAVX2(SB), NOSPLIT, $0-52
	FLUSH
	MOVQ         dst_base+0(FP), DI
	MOVQ         dst_len+8(FP), CX
	MOVQ         x_base+24(FP), SI
	VBROADCASTSS s+48(FP), Y2

loop:
	CMPQ    CX, $8
	JLT     tail
	VMOVUPS (SI), Y0
	VMULPS  Y2, Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DI
	SUBQ    $8, CX
	JMP     loop

tail:
	TESTQ      CX, CX
	JZ         done
	TAILMASK(Y15)
	VMASKMOVPS (SI), Y15, Y0
	VMULPS     Y2, Y0, Y0
	VMASKMOVPS Y0, Y15, (DI)

done:
	VZEROUPPER
	KEEP
	RET

// func scaleHeadsAVX2(dst, x, total []float32, dim int)
// Each dim elements of dst = those of x times 1/total, which has one for each.
TEXT ·scaleHeadsAVX2(SB), NOSPLIT, $0-80
	FLUSH
	MOVQ    dst_base+0(FP), DI
	MOVQ    x_base+24(FP), SI
	MOVQ    total_base+48(FP), DX
	MOVQ    total_len+56(FP), BX
	LEAQ    ·constants(SB), R8
	VMOVUPS 352(R8), Y3

head:
	TESTQ        BX, BX
	JZ           done
	VBROADCASTSS (DX), Y2
	VDIVPS       Y2, Y3, Y2
	MOVQ         dim+72(FP), CX

loop:
	CMPQ    CX, $8
	JLT     tail
	VMOVUPS (SI), Y0
	VMULPS  Y2, Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DI
	SUBQ    $8, CX
	JMP     loop

tail:
	TESTQ      CX, CX
	JZ         next
	MOVQ       CX, R9
	TAILMASK(Y15)
	VMASKMOVPS (SI), Y15, Y0
	VMULPS     Y2, Y0, Y0
	VMASKMOVPS Y0, Y15, (DI)
	LEAQ       (SI)(R9*4), SI
	LEAQ       (DI)(R9*4), DI

next:
	ADDQ $4, DX
	DECQ BX
	JMP  head

done:
	VZEROUPPER
	KEEP
	RET

// func scaleMulAVX2(dst, x, w []float32, s float32, subnormals subnormals)
TEXT ·scaleMulAVX2(SB), NOSPLIT, $0-80
	LDMXCSR subnormals+76(FP)
	MOVQ         dst_base+0(FP), DI
	MOVQ         dst_len+8(FP), CX
	MOVQ         x_base+24(FP), SI
	MOVQ         w_base+48(FP), DX
	VBROADCASTSS s+72(FP), Y2

loop:
	CMPQ    CX, $8
	JLT     tail
	VMOVUPS (SI), Y0
	VMOVUPS (DX), Y1
	VMULPS  Y2, Y0, Y0
	VMULPS  Y1, Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DX
	ADDQ    $32, DI
	SUBQ    $8, CX
	JMP     loop

tail:
	TESTQ      CX, CX
	JZ         done
	TAILMASK(Y15)
	VMASKMOVPS (SI), Y15, Y0
	VMASKMOVPS (DX), Y15, Y1
	VMULPS     Y2, Y0, Y0
	VMULPS     Y1, Y0, Y0
	VMASKMOVPS Y0, Y15, (DI)

done:
	VZEROUPPER
	KEEP
	RET

// func normAVX2(dst, x, w, b []float32, mean, s float32, subnormals subnormals)
TEXT ·normAVX2(SB), NOSPLIT, $0-108
	LDMXCSR subnormals+104(FP)
	MOVQ         dst_base+0(FP), DI
	MOVQ         dst_len+8(FP), CX
	MOVQ         x_base+24(FP), SI
	MOVQ         w_base+48(FP), DX
	MOVQ         b_base+72(FP), BX
	VBROADCASTSS mean+96(FP), Y3
	VBROADCASTSS s+100(FP), Y2

loop:
	CMPQ    CX, $8
	JLT     tail
	VMOVUPS (SI), Y0
	VMOVUPS (DX), Y1
	VMOVUPS (BX), Y4
	VSUBPS  Y3, Y0, Y0
	VMULPS  Y2, Y0, Y0
	VMULPS  Y1, Y0, Y0
	VADDPS  Y4, Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DX
	ADDQ    $32, BX
	ADDQ    $32, DI
	SUBQ    $8, CX
	JMP     loop

tail:
	TESTQ      CX, CX
	JZ         done
	TAILMASK(Y15)
	VMASKMOVPS (SI), Y15, Y0
	VMASKMOVPS (DX), Y15, Y1
	VMASKMOVPS (BX), Y15, Y4
	VSUBPS     Y3, Y0, Y0
	VMULPS     Y2, Y0, Y0
	VMULPS     Y1, Y0, Y0
	VADDPS     Y4, Y0, Y0
	VMASKMOVPS Y0, Y15, (DI)

done:
	VZEROUPPER
	KEEP
	RET

// func rotateAVX2(dst, c, s []float32)
// Pairs (p, q) of dst become (p*c - q*s, p*s + q*c); c has each cosine twice, s
// each sine as -s, s. Products are rounded before they are added.
TEXT ·rotateAVX2(SB), NOSPLIT, $0-72
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ c_base+24(FP), SI
	MOVQ s_base+48(FP), DX

loop:
	CMPQ      CX, $8
	JLT       tail
	VMOVUPS   (SI), Y1
	VMOVUPS   (DX), Y2
	VMOVUPS   (DI), Y0
	VPERMILPS $0xb1, Y0, Y3
	VMULPS    Y1, Y0, Y0
	VMULPS    Y2, Y3, Y3
	VADDPS    Y3, Y0, Y0
	VMOVUPS   Y0, (DI)
	ADDQ      $32, SI
	ADDQ      $32, DX
	ADDQ      $32, DI
	SUBQ      $8, CX
	JMP       loop

tail:
	TESTQ      CX, CX
	JZ         done
	TAILMASK(Y15)
	VMASKMOVPS (SI), Y15, Y1
	VMASKMOVPS (DX), Y15, Y2
	VMASKMOVPS (DI), Y15, Y0
	VPERMILPS  $0xb1, Y0, Y3
	VMULPS     Y1, Y0, Y0
	VMULPS     Y2, Y3, Y3
	VADDPS     Y3, Y0, Y0
	VMASKMOVPS Y0, Y15, (DI)

done:
	VZEROUPPER
	RET
