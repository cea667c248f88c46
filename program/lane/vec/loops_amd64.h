// The loops of the assembly. A TEXT is one loop with one operation put in: an
// operation is a macro of registers, sources first, as the assembler has them.
// Y0 to Y3 are the lanes at work, Y4 to Y7 other operands, Y8 and Y9 scratch of an
// operation, Y10 to Y13 its constants or scalar, set before the loop.
//
// Every loop takes the shortest of its slices. It does 32 lanes a turn, then 8,
// then the last 1 to 7 under a mask, so nothing outside the slices is touched, and
// no lane is read after it was written: the destination may be a source.

#define LEN(slice_len) \
	MOVQ slice_len, AX; \
	CMPQ AX, CX; \
	CMOVQLT AX, CX

// Y14 has the mask of the last CX lanes, 1 to 7.
#define TAILMASK \
	LEAQ ·tails(SB), AX; \
	SHLQ $2, CX; \
	SUBQ CX, AX; \
	VMOVDQU 32(AX), Y14

// One operand: S0 to S3 are the operation on Y0 to Y3.
#define LOOP1(S0, S1, S2, S3) \
	SUBQ $32, CX; \
	JLT few; \
many: \
	VMOVDQU (SI), Y0; \
	VMOVDQU 32(SI), Y1; \
	VMOVDQU 64(SI), Y2; \
	VMOVDQU 96(SI), Y3; \
	S0; \
	S1; \
	S2; \
	S3; \
	VMOVDQU Y0, (DI); \
	VMOVDQU Y1, 32(DI); \
	VMOVDQU Y2, 64(DI); \
	VMOVDQU Y3, 96(DI); \
	ADDQ $128, SI; \
	ADDQ $128, DI; \
	SUBQ $32, CX; \
	JGE many; \
few: \
	ADDQ $24, CX; \
	JLT last; \
eight: \
	VMOVDQU (SI), Y0; \
	S0; \
	VMOVDQU Y0, (DI); \
	ADDQ $32, SI; \
	ADDQ $32, DI; \
	SUBQ $8, CX; \
	JGE eight; \
last: \
	ADDQ $8, CX; \
	JEQ done; \
	TAILMASK; \
	VPMASKMOVD (SI), Y14, Y0; \
	S0; \
	VPMASKMOVD Y0, Y14, (DI); \
done: \
	VZEROUPPER; \
	RET

// func(dst, a []uint32)
#define UNARYARGS \
	MOVQ dst_base+0(FP), DI; \
	MOVQ dst_len+8(FP), CX; \
	MOVQ a_base+24(FP), SI; \
	LEN(a_len+32(FP))

#define UNARY(OP) \
	UNARYARGS; \
	LOOP1(OP(Y0, Y0), OP(Y1, Y1), OP(Y2, Y2), OP(Y3, Y3))

// func(dst, a []uint32, s uint32): a op s
#define BINARYVS(OP) \
	UNARYARGS; \
	MOVL s+48(FP), AX; \
	VMOVD AX, X13; \
	VPBROADCASTD X13, Y13; \
	LOOP1(OP(Y13, Y0, Y0), OP(Y13, Y1, Y1), OP(Y13, Y2, Y2), OP(Y13, Y3, Y3))

// func(dst, a []uint32, s uint32): s op a
#define BINARYSV(OP) \
	UNARYARGS; \
	MOVL s+48(FP), AX; \
	VMOVD AX, X13; \
	VPBROADCASTD X13, Y13; \
	LOOP1(OP(Y0, Y13, Y0), OP(Y1, Y13, Y1), OP(Y2, Y13, Y2), OP(Y3, Y13, Y3))

// Two operands, at SI and DX.
#define LOOP2(OP) \
	SUBQ $32, CX; \
	JLT few; \
many: \
	VMOVDQU (SI), Y0; \
	VMOVDQU (DX), Y4; \
	OP(Y4, Y0, Y0); \
	VMOVDQU 32(SI), Y1; \
	VMOVDQU 32(DX), Y5; \
	OP(Y5, Y1, Y1); \
	VMOVDQU 64(SI), Y2; \
	VMOVDQU 64(DX), Y6; \
	OP(Y6, Y2, Y2); \
	VMOVDQU 96(SI), Y3; \
	VMOVDQU 96(DX), Y7; \
	OP(Y7, Y3, Y3); \
	VMOVDQU Y0, (DI); \
	VMOVDQU Y1, 32(DI); \
	VMOVDQU Y2, 64(DI); \
	VMOVDQU Y3, 96(DI); \
	ADDQ $128, SI; \
	ADDQ $128, DX; \
	ADDQ $128, DI; \
	SUBQ $32, CX; \
	JGE many; \
few: \
	ADDQ $24, CX; \
	JLT last; \
eight: \
	VMOVDQU (SI), Y0; \
	VMOVDQU (DX), Y4; \
	OP(Y4, Y0, Y0); \
	VMOVDQU Y0, (DI); \
	ADDQ $32, SI; \
	ADDQ $32, DX; \
	ADDQ $32, DI; \
	SUBQ $8, CX; \
	JGE eight; \
last: \
	ADDQ $8, CX; \
	JEQ done; \
	TAILMASK; \
	VPMASKMOVD (SI), Y14, Y0; \
	VPMASKMOVD (DX), Y14, Y4; \
	OP(Y4, Y0, Y0); \
	VPMASKMOVD Y0, Y14, (DI); \
done: \
	VZEROUPPER; \
	RET

// func(dst, a, b []uint32)
#define BINARY(OP) \
	UNARYARGS; \
	MOVQ b_base+48(FP), DX; \
	LEN(b_len+56(FP)); \
	LOOP2(OP)

// Three operands: the loop of 32 would need more pointers and registers than it
// saves, so it is 16. R8 is c.
#define LOOP3(OP) \
	SUBQ $16, CX; \
	JLT few; \
many: \
	VMOVDQU (SI), Y0; \
	VMOVDQU (DX), Y4; \
	VMOVDQU (R8), Y5; \
	OP(Y5, Y4, Y0, Y0); \
	VMOVDQU 32(SI), Y1; \
	VMOVDQU 32(DX), Y4; \
	VMOVDQU 32(R8), Y5; \
	OP(Y5, Y4, Y1, Y1); \
	VMOVDQU Y0, (DI); \
	VMOVDQU Y1, 32(DI); \
	ADDQ $64, SI; \
	ADDQ $64, DX; \
	ADDQ $64, R8; \
	ADDQ $64, DI; \
	SUBQ $16, CX; \
	JGE many; \
few: \
	ADDQ $8, CX; \
	JLT last; \
	VMOVDQU (SI), Y0; \
	VMOVDQU (DX), Y4; \
	VMOVDQU (R8), Y5; \
	OP(Y5, Y4, Y0, Y0); \
	VMOVDQU Y0, (DI); \
	ADDQ $32, SI; \
	ADDQ $32, DX; \
	ADDQ $32, R8; \
	ADDQ $32, DI; \
	SUBQ $8, CX; \
last: \
	ADDQ $8, CX; \
	JEQ done; \
	TAILMASK; \
	VPMASKMOVD (SI), Y14, Y0; \
	VPMASKMOVD (DX), Y14, Y4; \
	VPMASKMOVD (R8), Y14, Y5; \
	OP(Y5, Y4, Y0, Y0); \
	VPMASKMOVD Y0, Y14, (DI); \
done: \
	VZEROUPPER; \
	RET

// func(dst, a, b, c []uint32)
#define TERNARY(OP) \
	UNARYARGS; \
	MOVQ b_base+48(FP), DX; \
	LEN(b_len+56(FP)); \
	MOVQ c_base+72(FP), R8; \
	LEN(c_len+80(FP)); \
	LOOP3(OP)
