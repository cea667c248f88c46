// DOT16BLOCKS is DOT16 where ROW does a block of 32 columns, those of x in Z0 and Z1.
#define DOT16BLOCKS(ROW, step) \
	MOVQ y+0(FP), DI         \
	MOVQ w+8(FP), SI         \
	MOVQ groups+32(FP), BX   \
	MOVQ stride+40(FP), R12  \
	LEAQ (R12)(R12*2), R13   \
	FOLDMASKS                \
group:                           \
	ROWSAT(SI)               \
	CLEAR16                  \
	MOVQ x+16(FP), DX        \
	MOVQ cols+24(FP), CX     \
	SHRQ $5, CX              \
loop:                            \
	VMOVUPS (DX), Z0         \
	VMOVUPS 64(DX), Z1       \
	ROWS16(ROW)              \
	ADDQ    $128, DX         \
	STEPROWS(step)           \
	DECQ    CX               \
	JNZ     loop             \
	PUT16(add+48(FP))        \
	DECQ    BX               \
	JNZ     group            \
	VZEROUPPER               \
	KEEP                     \
	RET

// A block of q4_0 is an f16 scale and 16 bytes: columns 0 to 15 in the lower halves, 16
// to 31 in the upper ones, each 8 more than what is to be scaled. Z5 has the sixteen
// values that a half stands for; the index of VPERMPS is its lowest four bits.
#define Q4ROW(m, acc) \
	AHEAD(m) \
	MOVWLZX      m, AX       \
	VMULPS.BCST  (R15)(AX*4), Z5, Z2 \
	VPMOVZXBD    2 m, Z3     \
	VPSRLD       $4, Z3, Z4  \
	VPERMPS      Z2, Z3, Z3  \
	VPERMPS      Z2, Z4, Z4  \
	VFMADD231PS  Z3, Z0, acc \
	VFMADD231PS  Z4, Z1, acc

