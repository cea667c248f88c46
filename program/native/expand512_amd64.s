#include "textflag.h"
#include "rows512_amd64.h"

// As expand_amd64.s, with the wide registers.

// EXPAND16 is the body of a function(dst []float32, w []byte) for values of two bytes.
// TO makes sixteen of them, in memory or a register, f32.
#define EXPAND16(TO) \
	MOVQ dst_base+0(FP), DI   \
	MOVQ dst_len+8(FP), BX    \
	MOVQ w_base+24(FP), SI    \
	MOVQ BX, CX               \
	ANDL $15, CX              \
	TAIL16                    \
	SHRQ $5, BX               \
	JZ   half                 \
loop:                             \
	TO((SI), Z0)              \
	TO(32(SI), Z1)            \
	VMOVUPS Z0, (DI)          \
	VMOVUPS Z1, 64(DI)        \
	ADDQ $64, SI              \
	ADDQ $128, DI             \
	DECQ BX                   \
	JNZ  loop                 \
half:                             \
	TESTQ $16, dst_len+8(FP)  \
	JZ   tail                 \
	TO((SI), Z0)              \
	VMOVUPS Z0, (DI)          \
	ADDQ $32, SI              \
	ADDQ $64, DI              \
tail:                             \
	KORTESTW K1, K1           \
	JZ   done                 \
	VMOVDQU16.Z (SI), K1, Y2  \
	TO(Y2, Z0)                \
	VMOVUPS Z0, K1, (DI)      \
done:                             \
	VZEROUPPER                \
	RET

#define HALFTO(m, z) \
	VCVTPH2PS m, z

#define BRAINTO(m, z) \
	VPMOVZXWD m, z      \
	VPSLLD    $16, z, z

// func expandF16AVX512(dst []float32, w []byte)
TEXT ·expandF16AVX512(SB), NOSPLIT, $0-48
	EXPAND16(HALFTO)

// func expandBF16AVX512(dst []float32, w []byte)
TEXT ·expandBF16AVX512(SB), NOSPLIT, $0-48
	EXPAND16(BRAINTO)

// func expandQ8AVX512(dst []float32, w []byte)
TEXT ·expandQ8AVX512(SB), NOSPLIT, $0-48
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ w_base+24(FP), SI
	LEAQ ·halves(SB), R15
	SHRQ $5, CX
	JZ   done

block:
	MOVWLZX      (SI), AX
	VBROADCASTSS (R15)(AX*4), Z2
	VPMOVSXBD    2(SI), Z0
	VPMOVSXBD    18(SI), Z1
	VCVTDQ2PS    Z0, Z0
	VCVTDQ2PS    Z1, Z1
	VMULPS       Z2, Z0, Z0
	VMULPS       Z2, Z1, Z1
	VMOVUPS      Z0, (DI)
	VMOVUPS      Z1, 64(DI)
	ADDQ         $34, SI
	ADDQ         $128, DI
	DECQ         CX
	JNZ          block

done:
	VZEROUPPER
	RET

// func expandQ4AVX512(dst []float32, w []byte)
TEXT ·expandQ4AVX512(SB), NOSPLIT, $0-48
	MOVQ    dst_base+0(FP), DI
	MOVQ    dst_len+8(FP), CX
	MOVQ    w_base+24(FP), SI
	LEAQ    ·halves(SB), R15
	VMOVUPS ·nibbles(SB), Z5
	SHRQ    $5, CX
	JZ      done

block:
	MOVWLZX     (SI), AX
	VMULPS.BCST (R15)(AX*4), Z5, Z2
	VPMOVZXBD   2(SI), Z0
	VPSRLD      $4, Z0, Z1
	VPERMPS     Z2, Z0, Z0
	VPERMPS     Z2, Z1, Z1
	VMOVUPS     Z0, (DI)
	VMOVUPS     Z1, 64(DI)
	ADDQ        $18, SI
	ADDQ        $128, DI
	DECQ        CX
	JNZ         block

done:
	VZEROUPPER
	RET
