#include "textflag.h"

// func Two(a, b *uint64)
TEXT ·Two(SB), NOSPLIT, $0-16
	MOVQ a+0(FP), AX
	MOVQ b+8(FP), BX
	PREFETCHT0 (AX)
	PREFETCHT0 (BX)
	RET

// func line(at uintptr)
TEXT ·line(SB), NOSPLIT, $0-8
	MOVQ at+0(FP), AX
	PREFETCHT0 (AX)
	RET

// func linesToWrite(p unsafe.Pointer, n uintptr)
TEXT ·linesToWrite(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ n+8(FP), CX
	TESTQ CX, CX
	JEQ  done
next:
	BYTE $0x0f; BYTE $0x0d; BYTE $0x08 // PREFETCHW (AX); where there is none, it does nothing
	ADDQ $64, AX
	DECQ CX
	JNE  next
done:
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
