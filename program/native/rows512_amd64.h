// Sixteen accumulators, Z16 to Z31, of sixteen lanes each.

// ROWS16 does OP(memory, accumulator) for sixteen rows that are R12 bytes apart: R8 to
// R11 are at the first of four each, R13 is three times R12.
#define ROWS16(OP) \
	OP((R8), Z16)         \
	OP((R8)(R12*1), Z17)  \
	OP((R8)(R12*2), Z18)  \
	OP((R8)(R13*1), Z19)  \
	OP((R9), Z20)         \
	OP((R9)(R12*1), Z21)  \
	OP((R9)(R12*2), Z22)  \
	OP((R9)(R13*1), Z23)  \
	OP((R10), Z24)        \
	OP((R10)(R12*1), Z25) \
	OP((R10)(R12*2), Z26) \
	OP((R10)(R13*1), Z27) \
	OP((R11), Z28)        \
	OP((R11)(R12*1), Z29) \
	OP((R11)(R12*2), Z30) \
	OP((R11)(R13*1), Z31)

// ROWSAT points R8 to R11 to the rows from a register on.
#define ROWSAT(at) \
	MOVQ at, R8            \
	LEAQ (R8)(R12*4), R9   \
	LEAQ (R9)(R12*4), R10  \
	LEAQ (R10)(R12*4), R11

// AHEAD asks for what will be wanted soon, of rows that follow each other in memory: what
// prefetches by itself loses its way at the end of each sixteen short rows.
#define AHEAD(m) PREFETCHT0 8192 m

#define STEPROWS(bytes) \
	ADDQ bytes, R8  \
	ADDQ bytes, R9  \
	ADDQ bytes, R10 \
	ADDQ bytes, R11

#define CLEAR16 \
	VPXORD Z16, Z16, Z16 \
	VPXORD Z17, Z17, Z17 \
	VPXORD Z18, Z18, Z18 \
	VPXORD Z19, Z19, Z19 \
	VPXORD Z20, Z20, Z20 \
	VPXORD Z21, Z21, Z21 \
	VPXORD Z22, Z22, Z22 \
	VPXORD Z23, Z23, Z23 \
	VPXORD Z24, Z24, Z24 \
	VPXORD Z25, Z25, Z25 \
	VPXORD Z26, Z26, Z26 \
	VPXORD Z27, Z27, Z27 \
	VPXORD Z28, Z28, Z28 \
	VPXORD Z29, Z29, Z29 \
	VPXORD Z30, Z30, Z30 \
	VPXORD Z31, Z31, Z31

// The masks of the folds, K2 and K3.
#define FOLDMASKS \
	MOVL  $0xff00, AX \
	KMOVW AX, K2      \
	MOVL  $0xcccc, AX \
	KMOVW AX, K3

// A fold halves the lanes that each of two registers still has for its sum, and puts
// both into the first.
#define FOLD8(a, b) \
	VSHUFF64X2 $0x4e, b, a, Z0 \
	VMOVAPS    b, K2, a        \
	VADDPS     Z0, a, a

#define FOLD4(a, b) \
	VSHUFF32X4 $0x88, b, a, Z0 \
	VSHUFF32X4 $0xdd, b, a, Z1 \
	VADDPS     Z1, Z0, a

#define FOLD2(a, b) \
	VSHUFPD $0x55, b, a, Z0 \
	VMOVAPS b, K3, a        \
	VADDPS  Z0, a, a

#define FOLD1(a, b) \
	VSHUFPS $0x88, b, a, Z0 \
	VSHUFPS $0xdd, b, a, Z1 \
	VADDPS  Z1, Z0, a

// SUM16 makes lane i of Z16 the sum of the lanes of Z(16+i), changing Z0 and Z1: lane
// l and l+8, then these sums 4 apart, then 2, then 1, as SUMLANES does.
#define SUM16 \
	FOLD8(Z16, Z20) \
	FOLD8(Z24, Z28) \
	FOLD8(Z17, Z21) \
	FOLD8(Z25, Z29) \
	FOLD8(Z18, Z22) \
	FOLD8(Z26, Z30) \
	FOLD8(Z19, Z23) \
	FOLD8(Z27, Z31) \
	SUM16HALVES

// SUM16HALVES is the rest of SUM16, where each register has eight lanes of one sum and
// eight of that which is four further on: 0 and 4 in Z16, 8 and 12 in Z24, and so on.
#define SUM16HALVES \
	FOLD4(Z16, Z24) \
	FOLD4(Z17, Z25) \
	FOLD4(Z18, Z26) \
	FOLD4(Z19, Z27) \
	FOLD2(Z16, Z17) \
	FOLD2(Z18, Z19) \
	FOLD1(Z16, Z18)

// SUMLANES makes X0[0] the sum of the lanes of Z0, changing X1.
#define SUMLANES \
	VEXTRACTF64X4 $1, Z0, Y1      \
	VADDPS        Y1, Y0, Y0      \
	VEXTRACTF128  $1, Y0, X1      \
	VADDPS        X1, X0, X0      \
	VPERMILPS     $0x4e, X0, X1   \
	VADDPS        X1, X0, X0      \
	VPERMILPS     $0xb1, X0, X1   \
	VADDSS        X1, X0, X0

// TAIL16 is a mask of the lowest CX (0 to 15) lanes in K1.
#define TAIL16 \
	MOVL  $1, AX  \
	SHLL  CX, AX  \
	DECL  AX      \
	KMOVW AX, K1

// DOT16 is the body of a function(y, w, x, cols, groups, stride, add) that multiplies
// groups times sixteen rows, stride bytes apart, with x, and adds the sums to y if add
// is not 0. ROW and TAILROW do sixteen columns of a row, which are step bytes, the
// latter those in K1 of them, with those of x, which are in Z0.
#define DOT16(ROW, TAILROW, step) \
	MOVQ y+0(FP), DI         \
	MOVQ w+8(FP), SI         \
	MOVQ groups+32(FP), BX   \
	MOVQ stride+40(FP), R12  \
	LEAQ (R12)(R12*2), R13   \
	MOVQ cols+24(FP), CX     \
	ANDL $15, CX             \
	TAIL16                   \
	FOLDMASKS                \
group:                           \
	ROWSAT(SI)               \
	CLEAR16                  \
	MOVQ x+16(FP), DX        \
	MOVQ cols+24(FP), CX     \
	SHRQ $4, CX              \
	JZ   tail                \
loop:                            \
	VMOVUPS (DX), Z0         \
	ROWS16(ROW)              \
	ADDQ    $64, DX          \
	STEPROWS(step)           \
	DECQ    CX               \
	JNZ     loop             \
tail:                            \
	KORTESTW K1, K1          \
	JZ       sum             \
	VMOVUPS.Z (DX), K1, Z0   \
	ROWS16(TAILROW)          \
sum:                             \
	PUT16(add+48(FP))        \
	DECQ    BX               \
	JNZ     group            \
	VZEROUPPER               \
	KEEP                     \
	RET

// PUT16 adds the accumulators up, stores the sums at DI or adds them to what is there,
// and moves on to the next sixteen rows. It has a label: once in a function.
#define PUT16(add) \
	SUM16                    \
	CMPQ    add, $0          \
	JE      store            \
	VADDPS  (DI), Z16, Z16   \
store:                           \
	VMOVUPS Z16, (DI)        \
	ADDQ    $64, DI          \
	MOVQ    R12, AX          \
	SHLQ    $4, AX           \
	ADDQ    AX, SI
