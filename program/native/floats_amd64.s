#include "textflag.h"
#include "floats_amd64.h"

DATA ·flushing+0(SB)/4, $0x9fc0
GLOBL ·flushing(SB), RODATA|NOPTR, $4

DATA ·keeping+0(SB)/4, $0x1f80
GLOBL ·keeping(SB), RODATA|NOPTR, $4

// func RestoreFloats()
TEXT ·RestoreFloats(SB), NOSPLIT, $0-0
	KEEP
	RET
