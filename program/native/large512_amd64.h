// ROWS16AT does OP(memory, offset of the row's scratch, accumulator) for sixteen rows.
#define ROWS16AT(OP) \
	OP((R8), 0, Z16) \
	OP((R8)(R12*1), 64, Z17) \
	OP((R8)(R12*2), 128, Z18) \
	OP((R8)(R13*1), 192, Z19) \
	OP((R9), 256, Z20) \
	OP((R9)(R12*1), 320, Z21) \
	OP((R9)(R12*2), 384, Z22) \
	OP((R9)(R13*1), 448, Z23) \
	OP((R10), 512, Z24) \
	OP((R10)(R12*1), 576, Z25) \
	OP((R10)(R12*2), 640, Z26) \
	OP((R10)(R13*1), 704, Z27) \
	OP((R11), 768, Z28) \
	OP((R11)(R12*1), 832, Z29) \
	OP((R11)(R12*2), 896, Z30) \
	OP((R11)(R13*1), 960, Z31)

// TIMESX adds sixteen values, times those of x at DX, to an accumulator. STORED stores them.
#define TIMESX(off, v, acc) VFMADD231PS off(DX), v, acc
#define STORED(off, v, acc) VMOVUPS v, off(DX)
