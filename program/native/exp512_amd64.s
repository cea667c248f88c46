#include "textflag.h"
#include "floats_amd64.h"
#include "rows512_amd64.h"

// The constants of EXP16, in all lanes.
#define EXP16CONSTANTS \
	LEAQ         ·constants(SB), R8 \
	VBROADCASTSS 0(R8), Z16   \
	VBROADCASTSS 32(R8), Z17  \
	VBROADCASTSS 64(R8), Z18  \
	VBROADCASTSS 96(R8), Z19  \
	VBROADCASTSS 128(R8), Z20 \
	VBROADCASTSS 160(R8), Z21 \
	VBROADCASTSS 192(R8), Z22 \
	VBROADCASTSS 224(R8), Z23 \
	VBROADCASTSS 256(R8), Z24 \
	VBROADCASTSS 288(R8), Z25 \
	VBROADCASTSS 320(R8), Z26 \
	VBROADCASTSS 352(R8), Z27

// Z0 = e^Z0, changing Z1 to Z3, as EXP does it in eight lanes.
#define EXP16 \
	VMINPS       Z0, Z16, Z0    \
	VMAXPS       Z0, Z17, Z0    \
	VMULPS       Z18, Z0, Z1    \
	VRNDSCALEPS  $8, Z1, Z1     \
	VFNMADD231PS Z19, Z1, Z0    \
	VFNMADD231PS Z20, Z1, Z0    \
	VMOVAPS      Z21, Z2        \
	VFMADD213PS  Z22, Z0, Z2    \
	VFMADD213PS  Z23, Z0, Z2    \
	VFMADD213PS  Z24, Z0, Z2    \
	VFMADD213PS  Z25, Z0, Z2    \
	VFMADD213PS  Z26, Z0, Z2    \
	VMULPS       Z0, Z0, Z3     \
	VFMADD213PS  Z0, Z3, Z2     \
	VADDPS       Z27, Z2, Z0    \
	VSCALEFPS    Z1, Z0, Z0

// func weighAVX512(w *float32, n, heads, pitch int, most, sum *float32)
// For each of some heads, whose w are pitch bytes apart: most becomes the largest of most
// and the n elements of w, these become e^(w-most), and sum is theirs. NaN is passed over
// for the largest.
TEXT ·weighAVX512(SB), NOSPLIT, $0-48
	FLUSH
	MOVQ w+0(FP), DI
	MOVQ heads+16(FP), R9
	MOVQ most+32(FP), R10
	MOVQ sum+40(FP), R11
	MOVQ n+8(FP), CX
	ANDL $15, CX
	TAIL16
	EXP16CONSTANTS

head:
	VBROADCASTSS (R10), Z4
	VMOVAPS      Z4, Z5
	MOVQ         n+8(FP), CX
	SHRQ         $4, CX
	MOVQ         DI, SI

max:
	SUBQ    $2, CX
	JLT     max1
	VMOVUPS (SI), Z0
	VMOVUPS 64(SI), Z1
	VMAXPS  Z4, Z0, Z4
	VMAXPS  Z5, Z1, Z5
	ADDQ    $128, SI
	JMP     max

max1:
	ADDQ    $2, CX
	JZ      maxtail
	VMOVUPS (SI), Z0
	VMAXPS  Z4, Z0, Z4
	ADDQ    $64, SI

maxtail:
	VMOVAPS       Z4, Z0
	VMOVUPS       (SI), K1, Z0
	VMAXPS        Z4, Z0, Z4
	VMAXPS        Z5, Z4, Z4
	VEXTRACTF64X4 $1, Z4, Y0
	VMAXPS        Y0, Y4, Y4
	VEXTRACTF128  $1, Y4, X0
	VMAXPS        X0, X4, X4
	VPERMILPS     $0x4e, X4, X0
	VMAXPS        X0, X4, X4
	VPERMILPS     $0xb1, X4, X0
	VMAXSS        X0, X4, X4
	VMOVSS        X4, (R10)
	VBROADCASTSS  X4, Z4
	VPXORD        Z5, Z5, Z5
	MOVQ          n+8(FP), CX
	SHRQ          $4, CX
	MOVQ          DI, SI
	JZ            tail

loop:
	VMOVUPS (SI), Z0
	VSUBPS  Z4, Z0, Z0
	EXP16
	VMOVUPS Z0, (SI)
	VADDPS  Z0, Z5, Z5
	ADDQ    $64, SI
	DECQ    CX
	JNZ     loop

tail:
	KORTESTW  K1, K1
	JZ        done
	VMOVUPS.Z (SI), K1, Z0
	VSUBPS    Z4, Z0, Z0
	EXP16
	VMOVUPS   Z0, K1, (SI)
	VADDPS    Z0, Z5, K1, Z5

done:
	VMOVAPS Z5, Z0
	SUMLANES
	VMOVSS  X0, (R11)
	ADDQ    $4, R10
	ADDQ    $4, R11
	ADDQ    pitch+24(FP), DI
	DECQ    R9
	JNZ     head
	VZEROUPPER
	KEEP
	RET

// func swigluAVX512(dst, a, b []float32)
// dst = a / (1 + e^-a) * b
TEXT ·swigluAVX512(SB), NOSPLIT, $0-72
	FLUSH
	MOVQ         dst_base+0(FP), DI
	MOVQ         dst_len+8(FP), BX
	MOVQ         a_base+24(FP), SI
	MOVQ         b_base+48(FP), DX
	EXP16CONSTANTS
	VBROADCASTSS 448(R8), Z28
	MOVQ         BX, CX
	ANDL         $15, CX
	TAIL16
	SHRQ         $4, BX
	JZ           tail

loop:
	VMOVUPS (SI), Z4
	VPXORD  Z28, Z4, Z0
	EXP16
	VADDPS  Z27, Z0, Z0
	VDIVPS  Z0, Z4, Z0
	VMULPS  (DX), Z0, Z0
	VMOVUPS Z0, (DI)
	ADDQ    $64, SI
	ADDQ    $64, DX
	ADDQ    $64, DI
	DECQ    BX
	JNZ     loop

tail:
	KORTESTW  K1, K1
	JZ        done
	VMOVUPS.Z (SI), K1, Z4
	VMOVUPS.Z (DX), K1, Z5
	VPXORD    Z28, Z4, Z0
	EXP16
	VADDPS    Z27, Z0, Z0
	VDIVPS    Z0, Z4, Z0
	VMULPS    Z5, Z0, Z0
	VMOVUPS   Z0, K1, (DI)

done:
	VZEROUPPER
	KEEP
	RET
