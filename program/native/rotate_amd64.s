#include "textflag.h"
#include "elem_amd64.h"

// func rotateHalvesAVX2(x, c, s []float32)
// In each head of 2·len(c) elements of x, element i of the first half and element i of
// the second, (p, q), become (p*c - q*s, p*s + q*c). Products are rounded before they
// are added.
TEXT ·rotateHalvesAVX2(SB), NOSPLIT, $0-72
	MOVQ x_base+0(FP), DI
	MOVQ x_len+8(FP), BX
	MOVQ c_len+32(FP), R9
	SHLQ $2, R9

head:
	MOVQ c_len+32(FP), CX
	SUBQ CX, BX
	SUBQ CX, BX
	JLT  done
	MOVQ c_base+24(FP), SI
	MOVQ s_base+48(FP), DX

loop:
	CMPQ    CX, $8
	JLT     tail
	VMOVUPS (DI), Y0
	VMOVUPS (DI)(R9*1), Y1
	VMOVUPS (SI), Y2
	VMOVUPS (DX), Y3
	VMULPS  Y2, Y0, Y4
	VMULPS  Y3, Y1, Y5
	VSUBPS  Y5, Y4, Y4
	VMULPS  Y3, Y0, Y0
	VMULPS  Y2, Y1, Y1
	VADDPS  Y1, Y0, Y0
	VMOVUPS Y4, (DI)
	VMOVUPS Y0, (DI)(R9*1)
	ADDQ    $32, DI
	ADDQ    $32, SI
	ADDQ    $32, DX
	SUBQ    $8, CX
	JMP     loop

tail:
	TESTQ      CX, CX
	JZ         next
	MOVQ       CX, R8
	TAILMASK(Y15)
	VMASKMOVPS (DI), Y15, Y0
	VMASKMOVPS (DI)(R9*1), Y15, Y1
	VMASKMOVPS (SI), Y15, Y2
	VMASKMOVPS (DX), Y15, Y3
	VMULPS     Y2, Y0, Y4
	VMULPS     Y3, Y1, Y5
	VSUBPS     Y5, Y4, Y4
	VMULPS     Y3, Y0, Y0
	VMULPS     Y2, Y1, Y1
	VADDPS     Y1, Y0, Y0
	VMASKMOVPS Y4, Y15, (DI)
	VMASKMOVPS Y0, Y15, (DI)(R9*1)
	LEAQ       (DI)(R8*4), DI

next:
	ADDQ R9, DI
	JMP  head

done:
	VZEROUPPER
	RET
