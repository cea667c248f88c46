#include "textflag.h"

// func pause()
TEXT ·pause(SB), NOSPLIT, $0-0
	PAUSE
	RET

// func copyWords(to, from, known *uint64, n int) (differ uint64)
//
// Each word of from is loaded once, stored to to, and compared as it was loaded.
TEXT ·copyWords(SB), NOSPLIT, $0-40
	MOVQ to+0(FP), DI
	MOVQ from+8(FP), SI
	MOVQ known+16(FP), DX
	MOVQ n+24(FP), CX
	PXOR X4, X4
	PXOR X5, X5
	SUBQ $4, CX
	JLT  two
four:
	MOVOU (SI), X0
	MOVOU 16(SI), X1
	MOVOU (DX), X2
	MOVOU 16(DX), X3
	MOVOU X0, (DI)
	MOVOU X1, 16(DI)
	PXOR  X2, X0
	PXOR  X3, X1
	POR   X0, X4
	POR   X1, X5
	ADDQ  $32, SI
	ADDQ  $32, DX
	ADDQ  $32, DI
	SUBQ  $4, CX
	JGE   four
two:
	POR  X5, X4
	MOVHLPS X4, X5
	POR  X5, X4
	MOVQ X4, AX
	ADDQ $4, CX
	JEQ  done
one:
	MOVQ (SI), BX
	MOVQ BX, (DI)
	XORQ (DX), BX
	ORQ  BX, AX
	ADDQ $8, SI
	ADDQ $8, DX
	ADDQ $8, DI
	DECQ CX
	JNE  one
done:
	MOVQ AX, differ+32(FP)
	RET
