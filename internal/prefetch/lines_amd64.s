#include "textflag.h"

// func Two(a, b *uint64)
TEXT ·Two(SB), NOSPLIT, $0-16
	MOVQ a+0(FP), AX
	MOVQ b+8(FP), BX
	PREFETCHT0 (AX)
	PREFETCHT0 (BX)
	RET

// func lines(p unsafe.Pointer, n uintptr)
TEXT ·lines(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ n+8(FP), CX
	TESTQ CX, CX
	JEQ  done
next:
	PREFETCHT0 (AX)
	ADDQ $64, AX
	DECQ CX
	JNE  next
done:
	RET
