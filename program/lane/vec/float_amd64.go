package vec

// Floats in assembly, in float_amd64.s.

//go:noescape
func faddAVX2(dst, a, b []uint32)

//go:noescape
func faddVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func faddSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func fsubAVX2(dst, a, b []uint32)

//go:noescape
func fsubVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func fsubSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func fmulAVX2(dst, a, b []uint32)

//go:noescape
func fmulVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func fmulSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func fdivAVX2(dst, a, b []uint32)

//go:noescape
func fdivVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func fdivSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func fminAVX2(dst, a, b []uint32)

//go:noescape
func fminVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func fminSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func fmaxAVX2(dst, a, b []uint32)

//go:noescape
func fmaxVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func fmaxSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func nminAVX2(dst, a, b []uint32)

//go:noescape
func nminVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func nminSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func nmaxAVX2(dst, a, b []uint32)

//go:noescape
func nmaxVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func nmaxSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func fnegateAVX2(dst, a []uint32)

//go:noescape
func fabsAVX2(dst, a []uint32)

//go:noescape
func roundEvenAVX2(dst, a []uint32)

//go:noescape
func floorAVX2(dst, a []uint32)

//go:noescape
func ceilAVX2(dst, a []uint32)

//go:noescape
func truncAVX2(dst, a []uint32)

//go:noescape
func fractAVX2(dst, a []uint32)

//go:noescape
func sqrtAVX2(dst, a []uint32)

//go:noescape
func fsignAVX2(dst, a []uint32)

//go:noescape
func mulAddAVX2(dst, a, b, c []uint32)

//go:noescape
func ffmaAVX2(dst, a, b, c []uint32)

//go:noescape
func fclampAVX2(dst, a, b, c []uint32)

//go:noescape
func fmixAVX2(dst, a, b, c []uint32)

//go:noescape
func mulAddSAVX2(dst, a []uint32, s uint32, c []uint32)
