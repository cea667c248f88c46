#include "textflag.h"
#include "floats_amd64.h"
#include "rows512_amd64.h"
#include "blocks512_amd64.h"

// TIMESX2 adds the 32 values in Z8 and Z9, times those of x in Z0 and Z1.
#define TIMESX2(acc) \
	VFMADD231PS Z8, Z0, acc \
	VFMADD231PS Z9, Z1, acc

// EXPAND is the body of a function(dst, w, blocks) that stores the values of blocks of this
// many bytes.
#define EXPAND(VALUES, bytes) \
	LEAQ    ·halves(SB), R15    \
	MOVQ    dst+0(FP), DI       \
	MOVQ    w+8(FP), SI         \
	MOVQ    blocks+16(FP), CX   \
block:                              \
	VALUES((SI))                \
	VMOVUPS Z8, (DI)            \
	VMOVUPS Z9, 64(DI)          \
	ADDQ    $128, DI            \
	ADDQ    bytes, SI           \
	DECQ    CX                  \
	JNZ     block               \
	VZEROUPPER                  \
	KEEP                        \
	RET

// As dot16Q8AVX512, of other blocks of 32 columns, and their expansions: iq4_nl is q4_0 with
// levels of its own.

#define NLVALUES(m) \
	MOVWLZX     m, AX               \
	VMULPS.BCST (R15)(AX*4), Z5, Z2 \
	VPMOVZXBD   2 m, Z3             \
	VPSRLD      $4, Z3, Z4          \
	VPERMPS     Z2, Z3, Z8          \
	VPERMPS     Z2, Z4, Z9

// func dot16IQ4NLAVX512(y *float32, w *byte, x *float32, cols, groups, stride, add int)
TEXT ·dot16IQ4NLAVX512(SB), NOSPLIT, $0-56
	FLUSH
	LEAQ    ·halves(SB), R15
	VMOVUPS ·iqTable(SB), Z5
	DOT16BLOCKS(Q4ROW, $18)

// q4_1 has an offset after its scale. Z5 has the digits.
#define Q41VALUES(m) \
	MOVWLZX          m, AX             \
	VBROADCASTSS     (R15)(AX*4), Z2   \
	MOVWLZX          2 m, AX           \
	VPMOVZXBD        4 m, Z3           \
	VFMADD213PS.BCST (R15)(AX*4), Z5, Z2 \
	VPSRLD           $4, Z3, Z4        \
	VPERMPS          Z2, Z3, Z8        \
	VPERMPS          Z2, Z4, Z9

#define Q41ROW(m, acc) \
	AHEAD(m) \
	Q41VALUES(m) \
	TIMESX2(acc)

// func dot16Q41AVX512(y *float32, w *byte, x *float32, cols, groups, stride, add int)
TEXT ·dot16Q41AVX512(SB), NOSPLIT, $0-56
	FLUSH
	LEAQ    ·halves(SB), R15
	VMOVUPS ·digits(SB), Z5
	DOT16BLOCKS(Q41ROW, $20)

// FIFTHS looks halves up in the table Z2, and in Z7 where the fifth bit is set, which are in
// K1 and K4.
#define FIFTHS(m) \
	VPMOVZXBD   m, Z3            \
	VPSRLD      $4, Z3, Z4       \
	VPERMPS     Z2, Z3, Z8       \
	VPERMPS     Z2, Z4, Z9       \
	VPERMPS     Z7, Z3, K1, Z8   \
	VPERMPS     Z7, Z4, K4, Z9

// A block of q5_0: a scale, the fifth bits, and the halves.
#define Q50VALUES(m) \
	MOVWLZX     m, AX               \
	VMULPS.BCST (R15)(AX*4), Z5, Z2 \
	VMULPS.BCST (R15)(AX*4), Z6, Z7 \
	KMOVW       2 m, K1             \
	KMOVW       4 m, K4             \
	FIFTHS(6 m)

#define Q50ROW(m, acc) \
	AHEAD(m) \
	Q50VALUES(m) \
	TIMESX2(acc)

// func dot16Q50AVX512(y *float32, w *byte, x *float32, cols, groups, stride, add int)
TEXT ·dot16Q50AVX512(SB), NOSPLIT, $0-56
	FLUSH
	LEAQ    ·halves(SB), R15
	VMOVUPS ·fivesBelow+0(SB), Z5
	VMOVUPS ·fivesBelow+64(SB), Z6
	DOT16BLOCKS(Q50ROW, $22)

// A block of q5_1 has an offset after its scale.
#define Q51VALUES(m) \
	MOVWLZX          m, AX               \
	VBROADCASTSS     (R15)(AX*4), Z2     \
	VMOVAPS          Z2, Z7              \
	MOVWLZX          2 m, AX             \
	VFMADD213PS.BCST (R15)(AX*4), Z5, Z2 \
	VFMADD213PS.BCST (R15)(AX*4), Z6, Z7 \
	KMOVW            4 m, K1             \
	KMOVW            6 m, K4             \
	FIFTHS(8 m)

#define Q51ROW(m, acc) \
	AHEAD(m) \
	Q51VALUES(m) \
	TIMESX2(acc)

// func dot16Q51AVX512(y *float32, w *byte, x *float32, cols, groups, stride, add int)
TEXT ·dot16Q51AVX512(SB), NOSPLIT, $0-56
	FLUSH
	LEAQ    ·halves(SB), R15
	VMOVUPS ·digits+0(SB), Z5
	VMOVUPS ·digits+64(SB), Z6
	DOT16BLOCKS(Q51ROW, $24)

// func expandIQ4NLAVX512(dst *float32, w *byte, blocks int)
TEXT ·expandIQ4NLAVX512(SB), NOSPLIT, $0-24
	FLUSH
	VMOVUPS ·iqTable(SB), Z5
	EXPAND(NLVALUES, $18)

// func expandQ41AVX512(dst *float32, w *byte, blocks int)
TEXT ·expandQ41AVX512(SB), NOSPLIT, $0-24
	FLUSH
	VMOVUPS ·digits(SB), Z5
	EXPAND(Q41VALUES, $20)

// func expandQ50AVX512(dst *float32, w *byte, blocks int)
TEXT ·expandQ50AVX512(SB), NOSPLIT, $0-24
	FLUSH
	VMOVUPS ·fivesBelow+0(SB), Z5
	VMOVUPS ·fivesBelow+64(SB), Z6
	EXPAND(Q50VALUES, $22)

// func expandQ51AVX512(dst *float32, w *byte, blocks int)
TEXT ·expandQ51AVX512(SB), NOSPLIT, $0-24
	FLUSH
	VMOVUPS ·digits+0(SB), Z5
	VMOVUPS ·digits+64(SB), Z6
	EXPAND(Q51VALUES, $24)
