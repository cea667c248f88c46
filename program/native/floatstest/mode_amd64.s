#include "textflag.h"

// func Mode() uint32
TEXT ·Mode(SB), NOSPLIT, $0-4
	STMXCSR ret+0(FP)
	RET

// func SetMode(mode uint32)
TEXT ·SetMode(SB), NOSPLIT, $0-4
	LDMXCSR mode+0(FP)
	RET
