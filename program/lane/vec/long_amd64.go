package vec

// Lanes of 64 bits in assembly, in long_amd64.s.

//go:noescape
func iaddLAVX2(dst, a, b []uint64)

//go:noescape
func iaddLVSAVX2(dst, a []uint64, s uint64)

//go:noescape
func iaddLSVAVX2(dst, a []uint64, s uint64)

//go:noescape
func isubLAVX2(dst, a, b []uint64)

//go:noescape
func isubLVSAVX2(dst, a []uint64, s uint64)

//go:noescape
func isubLSVAVX2(dst, a []uint64, s uint64)

//go:noescape
func andLAVX2(dst, a, b []uint64)

//go:noescape
func andLVSAVX2(dst, a []uint64, s uint64)

//go:noescape
func andLSVAVX2(dst, a []uint64, s uint64)

//go:noescape
func orLAVX2(dst, a, b []uint64)

//go:noescape
func orLVSAVX2(dst, a []uint64, s uint64)

//go:noescape
func orLSVAVX2(dst, a []uint64, s uint64)

//go:noescape
func xorLAVX2(dst, a, b []uint64)

//go:noescape
func xorLVSAVX2(dst, a []uint64, s uint64)

//go:noescape
func xorLSVAVX2(dst, a []uint64, s uint64)

//go:noescape
func shlLAVX2(dst, a, b []uint64)

//go:noescape
func shlLVSAVX2(dst, a []uint64, s uint64)

//go:noescape
func shlLSVAVX2(dst, a []uint64, s uint64)

//go:noescape
func shrLAVX2(dst, a, b []uint64)

//go:noescape
func shrLVSAVX2(dst, a []uint64, s uint64)

//go:noescape
func shrLSVAVX2(dst, a []uint64, s uint64)

//go:noescape
func faddLAVX2(dst, a, b []uint64)

//go:noescape
func faddLVSAVX2(dst, a []uint64, s uint64)

//go:noescape
func faddLSVAVX2(dst, a []uint64, s uint64)

//go:noescape
func fsubLAVX2(dst, a, b []uint64)

//go:noescape
func fsubLVSAVX2(dst, a []uint64, s uint64)

//go:noescape
func fsubLSVAVX2(dst, a []uint64, s uint64)

//go:noescape
func fmulLAVX2(dst, a, b []uint64)

//go:noescape
func fmulLVSAVX2(dst, a []uint64, s uint64)

//go:noescape
func fmulLSVAVX2(dst, a []uint64, s uint64)

//go:noescape
func fdivLAVX2(dst, a, b []uint64)

//go:noescape
func fdivLVSAVX2(dst, a []uint64, s uint64)

//go:noescape
func fdivLSVAVX2(dst, a []uint64, s uint64)
