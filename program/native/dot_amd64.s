#include "textflag.h"
#include "floats_amd64.h"
#include "elem_amd64.h"

// func dotRowsAVX2(y, m, x []float32, stride int)
// y[r] = the dot product of x and the len(x) elements of m at r*stride. A row is
// added up in two times eight lanes, alone or beside three others: the same sums.
TEXT ·dotRowsAVX2(SB), NOSPLIT, $0-80
	FLUSH
	MOVQ y_base+0(FP), DI
	MOVQ y_len+8(FP), R8
	MOVQ m_base+24(FP), SI
	MOVQ x_base+48(FP), DX
	MOVQ stride+72(FP), R9
	SHLQ $2, R9

rows4:
	CMPQ R8, $4
	JLT  rows1
	MOVQ SI, R10
	LEAQ (R10)(R9*1), R11
	LEAQ (R11)(R9*1), R12
	LEAQ (R12)(R9*1), R13
	MOVQ x_len+56(FP), CX
	XORL BX, BX

	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3
	VXORPS Y4, Y4, Y4
	VXORPS Y5, Y5, Y5
	VXORPS Y6, Y6, Y6
	VXORPS Y7, Y7, Y7

loop16:
	CMPQ        CX, $16
	JLT         loop8
	VMOVUPS     (DX)(BX*1), Y8
	VMOVUPS     32(DX)(BX*1), Y9
	VFMADD231PS (R10)(BX*1), Y8, Y0
	VFMADD231PS 32(R10)(BX*1), Y9, Y1
	VFMADD231PS (R11)(BX*1), Y8, Y2
	VFMADD231PS 32(R11)(BX*1), Y9, Y3
	VFMADD231PS (R12)(BX*1), Y8, Y4
	VFMADD231PS 32(R12)(BX*1), Y9, Y5
	VFMADD231PS (R13)(BX*1), Y8, Y6
	VFMADD231PS 32(R13)(BX*1), Y9, Y7
	ADDQ        $64, BX
	SUBQ        $16, CX
	JMP         loop16

loop8:
	CMPQ        CX, $8
	JLT         tail
	VMOVUPS     (DX)(BX*1), Y8
	VFMADD231PS (R10)(BX*1), Y8, Y0
	VFMADD231PS (R11)(BX*1), Y8, Y2
	VFMADD231PS (R12)(BX*1), Y8, Y4
	VFMADD231PS (R13)(BX*1), Y8, Y6
	ADDQ        $32, BX
	SUBQ        $8, CX

tail:
	TESTQ       CX, CX
	JZ          sum
	TAILMASK(Y15)
	VMASKMOVPS  (DX)(BX*1), Y15, Y8
	VMASKMOVPS  (R10)(BX*1), Y15, Y9
	VFMADD231PS Y9, Y8, Y1
	VMASKMOVPS  (R11)(BX*1), Y15, Y9
	VFMADD231PS Y9, Y8, Y3
	VMASKMOVPS  (R12)(BX*1), Y15, Y9
	VFMADD231PS Y9, Y8, Y5
	VMASKMOVPS  (R13)(BX*1), Y15, Y9
	VFMADD231PS Y9, Y8, Y7

sum:
	VADDPS       Y1, Y0, Y0
	VADDPS       Y3, Y2, Y2
	VADDPS       Y5, Y4, Y4
	VADDPS       Y7, Y6, Y6
	VHADDPS      Y2, Y0, Y0
	VHADDPS      Y6, Y4, Y4
	VHADDPS      Y4, Y0, Y0
	VEXTRACTF128 $1, Y0, X1
	VADDPS       X1, X0, X0
	VMOVUPS      X0, (DI)
	ADDQ         $16, DI
	LEAQ         (SI)(R9*4), SI
	SUBQ         $4, R8
	JMP          rows4

rows1:
	TESTQ  R8, R8
	JZ     done
	MOVQ   x_len+56(FP), CX
	XORL   BX, BX
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1

one16:
	CMPQ        CX, $16
	JLT         one8
	VMOVUPS     (DX)(BX*1), Y8
	VMOVUPS     32(DX)(BX*1), Y9
	VFMADD231PS (SI)(BX*1), Y8, Y0
	VFMADD231PS 32(SI)(BX*1), Y9, Y1
	ADDQ        $64, BX
	SUBQ        $16, CX
	JMP         one16

one8:
	CMPQ        CX, $8
	JLT         onetail
	VMOVUPS     (DX)(BX*1), Y8
	VFMADD231PS (SI)(BX*1), Y8, Y0
	ADDQ        $32, BX
	SUBQ        $8, CX

onetail:
	TESTQ       CX, CX
	JZ          onesum
	TAILMASK(Y15)
	VMASKMOVPS  (DX)(BX*1), Y15, Y8
	VMASKMOVPS  (SI)(BX*1), Y15, Y9
	VFMADD231PS Y9, Y8, Y1

onesum:
	VADDPS Y1, Y0, Y0
	SUM8
	VMOVSS X0, (DI)
	ADDQ   $4, DI
	ADDQ   R9, SI
	DECQ   R8
	JMP    rows1

done:
	VZEROUPPER
	KEEP
	RET

// func axpyRowsAVX2(acc, m, p []float32, stride int)
// acc += the sum of p[r] times the len(acc) elements of m at r*stride, in the order
// of rows.
TEXT ·axpyRowsAVX2(SB), NOSPLIT, $0-80
	FLUSH
	MOVQ acc_base+0(FP), DI
	MOVQ acc_len+8(FP), CX
	MOVQ m_base+24(FP), SI
	MOVQ p_base+48(FP), DX
	MOVQ stride+72(FP), R9
	SHLQ $2, R9

cols64:
	CMPQ    CX, $64
	JLT     cols32
	MOVQ    p_len+56(FP), R8
	MOVQ    SI, R10
	MOVQ    DX, R11
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	VMOVUPS 64(DI), Y2
	VMOVUPS 96(DI), Y3
	VMOVUPS 128(DI), Y4
	VMOVUPS 160(DI), Y5
	VMOVUPS 192(DI), Y6
	VMOVUPS 224(DI), Y7

row64:
	TESTQ        R8, R8
	JZ           end64
	VBROADCASTSS (R11), Y8
	VFMADD231PS  (R10), Y8, Y0
	VFMADD231PS  32(R10), Y8, Y1
	VFMADD231PS  64(R10), Y8, Y2
	VFMADD231PS  96(R10), Y8, Y3
	VFMADD231PS  128(R10), Y8, Y4
	VFMADD231PS  160(R10), Y8, Y5
	VFMADD231PS  192(R10), Y8, Y6
	VFMADD231PS  224(R10), Y8, Y7
	ADDQ         R9, R10
	ADDQ         $4, R11
	DECQ         R8
	JMP          row64

end64:
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, 64(DI)
	VMOVUPS Y3, 96(DI)
	VMOVUPS Y4, 128(DI)
	VMOVUPS Y5, 160(DI)
	VMOVUPS Y6, 192(DI)
	VMOVUPS Y7, 224(DI)
	ADDQ    $256, SI
	ADDQ    $256, DI
	SUBQ    $64, CX
	JMP     cols64

cols32:
	CMPQ    CX, $32
	JLT     cols8
	MOVQ    p_len+56(FP), R8
	MOVQ    SI, R10
	MOVQ    DX, R11
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	VMOVUPS 64(DI), Y2
	VMOVUPS 96(DI), Y3

row32:
	TESTQ        R8, R8
	JZ           end32
	VBROADCASTSS (R11), Y8
	VFMADD231PS  (R10), Y8, Y0
	VFMADD231PS  32(R10), Y8, Y1
	VFMADD231PS  64(R10), Y8, Y2
	VFMADD231PS  96(R10), Y8, Y3
	ADDQ         R9, R10
	ADDQ         $4, R11
	DECQ         R8
	JMP          row32

end32:
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, 64(DI)
	VMOVUPS Y3, 96(DI)
	ADDQ    $128, SI
	ADDQ    $128, DI
	SUBQ    $32, CX
	JMP     cols32

cols8:
	CMPQ    CX, $8
	JLT     tail
	MOVQ    p_len+56(FP), R8
	MOVQ    SI, R10
	MOVQ    DX, R11
	VMOVUPS (DI), Y0

row8:
	TESTQ        R8, R8
	JZ           end8
	VBROADCASTSS (R11), Y8
	VFMADD231PS  (R10), Y8, Y0
	ADDQ         R9, R10
	ADDQ         $4, R11
	DECQ         R8
	JMP          row8

end8:
	VMOVUPS Y0, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DI
	SUBQ    $8, CX
	JMP     cols8

tail:
	TESTQ      CX, CX
	JZ         done
	TAILMASK(Y15)
	MOVQ       p_len+56(FP), R8
	VMASKMOVPS (DI), Y15, Y0

rowtail:
	TESTQ        R8, R8
	JZ           endtail
	VBROADCASTSS (DX), Y8
	VMASKMOVPS   (SI), Y15, Y9
	VFMADD231PS  Y9, Y8, Y0
	ADDQ         R9, SI
	ADDQ         $4, DX
	DECQ         R8
	JMP          rowtail

endtail:
	VMASKMOVPS Y0, Y15, (DI)

done:
	VZEROUPPER
	KEEP
	RET
