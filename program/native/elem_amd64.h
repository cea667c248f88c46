// Loads a mask of the lowest CX (1 to 7) lanes.
#define TAILMASK(mask) \
	NEGQ    CX                    \
	LEAQ    ·tailMask+32(SB), AX  \
	VMOVDQU (AX)(CX*4), mask

// Y0 = e^Y0, changing Y1 to Y3; R8 points to ·constants. The relative error is
// below 1.5e-7; results below 2^-126 are 0, as its callers FLUSH, too large ones are
// +Inf, NaN stays NaN: 2^n is multiplied in two factors that are normal numbers.
#define EXP \
	VMOVUPS      0(R8), Y1       \
	VMINPS       Y0, Y1, Y0      \
	VMOVUPS      32(R8), Y1      \
	VMAXPS       Y0, Y1, Y0      \
	VMULPS       64(R8), Y0, Y1  \
	VROUNDPS     $8, Y1, Y1      \
	VFNMADD231PS 96(R8), Y1, Y0  \
	VFNMADD231PS 128(R8), Y1, Y0 \
	VMOVUPS      160(R8), Y2     \
	VFMADD213PS  192(R8), Y0, Y2 \
	VFMADD213PS  224(R8), Y0, Y2 \
	VFMADD213PS  256(R8), Y0, Y2 \
	VFMADD213PS  288(R8), Y0, Y2 \
	VFMADD213PS  320(R8), Y0, Y2 \
	VMULPS       Y0, Y0, Y3      \
	VFMADD213PS  Y0, Y3, Y2      \
	VADDPS       352(R8), Y2, Y0 \
	VCVTPS2DQ    Y1, Y1          \
	VPSRAD       $1, Y1, Y2      \
	VPSUBD       Y2, Y1, Y1      \
	VPADDD       384(R8), Y1, Y1 \
	VPADDD       384(R8), Y2, Y2 \
	VPSLLD       $23, Y1, Y1     \
	VPSLLD       $23, Y2, Y2     \
	VMULPS       Y1, Y0, Y0      \
	VMULPS       Y2, Y0, Y0

// X0[0] = the eight lanes of Y0 added up, changing X1: neighbours, then neighbours
// of these, then the halves.
#define SUM8 \
	VHADDPS      Y0, Y0, Y0     \
	VHADDPS      Y0, Y0, Y0     \
	VEXTRACTF128 $1, Y0, X1     \
	VADDSS       X1, X0, X0
