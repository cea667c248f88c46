#include "textflag.h"
#include "floats_amd64.h"
#include "elem_amd64.h"

// Rows of other types as f32; expandQ8AVX2 is in q8_amd64.s.

// func expandF16AVX2(dst []float32, w []byte)
// The last, partial eight are read one by one: nothing beyond w is touched.
TEXT ·expandF16AVX2(SB), NOSPLIT, $0-48
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ w_base+24(FP), SI

loop:
	CMPQ      CX, $8
	JLT       tail
	VCVTPH2PS (SI), Y0
	VMOVUPS   Y0, (DI)
	ADDQ      $16, SI
	ADDQ      $32, DI
	SUBQ      $8, CX
	JMP       loop

tail:
	TESTQ     CX, CX
	JZ        done
	MOVWLZX   (SI), AX
	VMOVD     AX, X0
	VCVTPH2PS X0, X0
	VMOVSS    X0, (DI)
	ADDQ      $2, SI
	ADDQ      $4, DI
	DECQ      CX
	JMP       tail

done:
	VZEROUPPER
	RET

// func expandBF16AVX2(dst []float32, w []byte)
TEXT ·expandBF16AVX2(SB), NOSPLIT, $0-48
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ w_base+24(FP), SI

loop:
	CMPQ      CX, $8
	JLT       tail
	VPMOVZXWD (SI), Y0
	VPSLLD    $16, Y0, Y0
	VMOVUPS   Y0, (DI)
	ADDQ      $16, SI
	ADDQ      $32, DI
	SUBQ      $8, CX
	JMP       loop

tail:
	TESTQ   CX, CX
	JZ      done
	MOVWLZX (SI), AX
	SHLL    $16, AX
	MOVL    AX, (DI)
	ADDQ    $2, SI
	ADDQ    $4, DI
	DECQ    CX
	JMP     tail

done:
	VZEROUPPER
	RET

// func expandQ4AVX2(dst []float32, w []byte)
// dst, whole blocks, = the values of w. The sixteen values of a half byte lie in two
// registers; bit 3 of the half says in which.
TEXT ·expandQ4AVX2(SB), NOSPLIT, $0-48
	MOVQ    dst_base+0(FP), DI
	MOVQ    dst_len+8(FP), CX
	MOVQ    w_base+24(FP), SI
	SHRQ    $5, CX
	VMOVUPS ·nibbles+0(SB), Y6
	VMOVUPS ·nibbles+32(SB), Y7

block:
	TESTQ        CX, CX
	JZ           done
	VPBROADCASTW (SI), X4
	VCVTPH2PS    X4, Y4
	VMULPS       Y4, Y6, Y5  // -8 to -1
	VMULPS       Y4, Y7, Y4  // 0 to 7
	VPMOVZXBD    2(SI), Y0
	VPMOVZXBD    10(SI), Y1
	VPSRLD       $4, Y0, Y2
	VPSRLD       $4, Y1, Y3
	VPERMPS      Y5, Y0, Y8
	VPERMPS      Y4, Y0, Y9
	VPSLLD       $28, Y0, Y0
	VBLENDVPS    Y0, Y9, Y8, Y8
	VMOVUPS      Y8, (DI)
	VPERMPS      Y5, Y1, Y8
	VPERMPS      Y4, Y1, Y9
	VPSLLD       $28, Y1, Y1
	VBLENDVPS    Y1, Y9, Y8, Y8
	VMOVUPS      Y8, 32(DI)
	VPERMPS      Y5, Y2, Y8
	VPERMPS      Y4, Y2, Y9
	VPSLLD       $28, Y2, Y2
	VBLENDVPS    Y2, Y9, Y8, Y8
	VMOVUPS      Y8, 64(DI)
	VPERMPS      Y5, Y3, Y8
	VPERMPS      Y4, Y3, Y9
	VPSLLD       $28, Y3, Y3
	VBLENDVPS    Y3, Y9, Y8, Y8
	VMOVUPS      Y8, 96(DI)
	ADDQ         $18, SI
	ADDQ         $128, DI
	DECQ         CX
	JMP          block

done:
	VZEROUPPER
	RET

// func expandI8AVX2(dst []float32, w []byte, s float32, subnormals subnormals)
// dst = s times the signed bytes of w.
TEXT ·expandI8AVX2(SB), NOSPLIT, $0-56
	LDMXCSR subnormals+52(FP)
	MOVQ         dst_base+0(FP), DI
	MOVQ         dst_len+8(FP), CX
	MOVQ         w_base+24(FP), SI
	VBROADCASTSS s+48(FP), Y1

loop:
	CMPQ      CX, $8
	JLT       tail
	VPMOVSXBD (SI), Y0
	VCVTDQ2PS Y0, Y0
	VMULPS    Y1, Y0, Y0
	VMOVUPS   Y0, (DI)
	ADDQ      $8, SI
	ADDQ      $32, DI
	SUBQ      $8, CX
	JMP       loop

tail:
	TESTQ       CX, CX
	JZ          done
	MOVBLSX     (SI), AX
	VXORPS      X0, X0, X0
	VCVTSI2SSL  AX, X0, X0
	VMULSS      X1, X0, X0
	VMOVSS      X0, (DI)
	INCQ        SI
	ADDQ        $4, DI
	DECQ        CX
	JMP         tail

done:
	VZEROUPPER
	KEEP
	RET

// func expandI8GroupsAVX2(dst []float32, w []byte, s *float32, group int, subnormals subnormals)
// dst, whole groups, = the signed bytes of w times the scale of each group, which has a
// multiple of eight.
TEXT ·expandI8GroupsAVX2(SB), NOSPLIT, $0-68
	LDMXCSR subnormals+64(FP)
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), DX
	MOVQ w_base+24(FP), SI
	MOVQ s+48(FP), BX

group:
	TESTQ        DX, DX
	JZ           done
	MOVQ         group+56(FP), CX
	SUBQ         CX, DX
	VBROADCASTSS (BX), Y1
	ADDQ         $4, BX

loop:
	VPMOVSXBD (SI), Y0
	VCVTDQ2PS Y0, Y0
	VMULPS    Y1, Y0, Y0
	VMOVUPS   Y0, (DI)
	ADDQ      $8, SI
	ADDQ      $32, DI
	SUBQ      $8, CX
	JNZ       loop
	JMP       group

done:
	VZEROUPPER
	KEEP
	RET

// func expandI8OffsetsAVX2(dst []float32, w []byte, s, o *float32, group int, subnormals subnormals)
// As expandI8GroupsAVX2, plus the offset of each group.
TEXT ·expandI8OffsetsAVX2(SB), NOSPLIT, $0-76
	LDMXCSR subnormals+72(FP)
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), DX
	MOVQ w_base+24(FP), SI
	MOVQ s+48(FP), BX
	MOVQ o+56(FP), R8

group:
	TESTQ        DX, DX
	JZ           done
	MOVQ         group+64(FP), CX
	SUBQ         CX, DX
	VBROADCASTSS (BX), Y1
	VBROADCASTSS (R8), Y2
	ADDQ         $4, BX
	ADDQ         $4, R8

loop:
	VPMOVSXBD (SI), Y0
	VCVTDQ2PS Y0, Y0
	VMULPS    Y1, Y0, Y0
	VADDPS    Y2, Y0, Y0
	VMOVUPS   Y0, (DI)
	ADDQ      $8, SI
	ADDQ      $32, DI
	SUBQ      $8, CX
	JNZ       loop
	JMP       group

done:
	VZEROUPPER
	KEEP
	RET

// func expandI8SmallAVX2(dst []float32, w []byte, s *float32, shift int, subnormals subnormals)
// As expandI8GroupsAVX2, for groups of 1<<shift (1 to 4); len(dst) is a multiple of
// eight.
TEXT ·expandI8SmallAVX2(SB), NOSPLIT, $0-68
	LDMXCSR subnormals+64(FP)
	MOVQ    dst_base+0(FP), DI
	MOVQ    dst_len+8(FP), DX
	MOVQ    w_base+24(FP), SI
	MOVQ    s+48(FP), BX
	MOVQ    shift+56(FP), CX
	VMOVD   CX, X1
	VMOVDQU ·lanes(SB), Y6
	VPSRLD  X1, Y6, Y6
	MOVQ    $8, R8
	SHRQ    CX, R8 // scales of eight
	MOVQ    R8, CX
	SHLQ    $2, R8
	TAILMASK(Y5)

loop:
	TESTQ      DX, DX
	JZ         done
	VMASKMOVPS (BX), Y5, Y1
	VPERMPS    Y1, Y6, Y1
	VPMOVSXBD  (SI), Y0
	VCVTDQ2PS  Y0, Y0
	VMULPS     Y1, Y0, Y0
	VMOVUPS    Y0, (DI)
	ADDQ       R8, BX
	ADDQ       $8, SI
	ADDQ       $32, DI
	SUBQ       $8, DX
	JMP        loop

done:
	VZEROUPPER
	KEEP
	RET
