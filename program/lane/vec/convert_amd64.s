#include "textflag.h"
#include "loops_amd64.h"

#define STOF(a, d) VCVTDQ2PS a, d

// The high half of x times 2^16 is exact, the low half too: one rounding. Y12 is
// 0xFFFF on all lanes, Y11 2^16.
#define HALVES \
	VPCMPEQD Y12, Y12, Y12; VPSRLD $16, Y12, Y12; \
	MOVL $0x47800000, AX; VMOVD AX, X11; VPBROADCASTD X11, Y11
#define UTOF(a, d) \
	VPSRLD $16, a, Y8; VCVTDQ2PS Y8, Y8; VMULPS Y11, Y8, Y8; \
	VPAND Y12, a, Y9; VCVTDQ2PS Y9, Y9; VADDPS Y9, Y8, d

// The processor gives 1<<31 for what is out of range. That is right below; from
// 2^31 (Y12) on all bits are turned over, and a NaN is taken away.
#define BOUND MOVL $0x4F000000, AX; VMOVD AX, X12; VPBROADCASTD X12, Y12; VPXOR Y10, Y10, Y10
#define FTOS(a, d) \
	VCMPPS $0x1D, Y12, a, Y8; VCMPPS $7, a, a, Y9; \
	VCVTTPS2DQ a, d; VPXOR Y8, d, d; VPAND Y9, d, d

// Negative and NaN become 0 (Y10). 2^31 (Y12) and more is converted less 2^31 and
// gets the bit back; if there is 2^31 left, it gets all bits.
#define FTOU(a, d) \
	VMAXPS Y10, a, d; \
	VCMPPS $0x1D, Y12, d, Y8; VPAND Y12, Y8, Y9; VSUBPS Y9, d, d; \
	VCMPPS $0x1D, Y12, d, Y9; VCVTTPS2DQ d, d; \
	VPSLLD $31, Y8, Y8; VPOR Y8, d, d; VPOR Y9, d, d

#define SEXT8(a, d) VPSLLD $24, a, d; VPSRAD $24, d, d
#define SEXT16(a, d) VPSLLD $16, a, d; VPSRAD $16, d, d

// Eight halves are packed to the low 128 bits, and the way back.
#define FROMHALF(a, d) \
	VPAND Y12, a, Y8; VPACKUSDW Y8, Y8, Y8; VPERMQ $8, Y8, Y8; VCVTPH2PS X8, d
#define TOHALF(a, d) VCVTPS2PH $0, a, X8; VPMOVZXWD X8, d

TEXT ·sToFAVX2(SB), NOSPLIT, $0-48
	UNARY(STOF)

TEXT ·uToFAVX2(SB), NOSPLIT, $0-48
	HALVES
	UNARY(UTOF)

TEXT ·fToSAVX2(SB), NOSPLIT, $0-48
	BOUND
	UNARY(FTOS)

TEXT ·fToUAVX2(SB), NOSPLIT, $0-48
	BOUND
	UNARY(FTOU)

TEXT ·sext8AVX2(SB), NOSPLIT, $0-48
	UNARY(SEXT8)

TEXT ·sext16AVX2(SB), NOSPLIT, $0-48
	UNARY(SEXT16)

TEXT ·halfToFloatAVX2(SB), NOSPLIT, $0-48
	HALVES
	UNARY(FROMHALF)

TEXT ·floatToHalfAVX2(SB), NOSPLIT, $0-48
	UNARY(TOHALF)
