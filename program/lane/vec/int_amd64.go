package vec

// Integers in assembly, in int_amd64.s.

//go:noescape
func iaddAVX2(dst, a, b []uint32)

//go:noescape
func iaddVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func iaddSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func isubAVX2(dst, a, b []uint32)

//go:noescape
func isubVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func isubSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func imulAVX2(dst, a, b []uint32)

//go:noescape
func imulVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func imulSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func andAVX2(dst, a, b []uint32)

//go:noescape
func andVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func andSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func orAVX2(dst, a, b []uint32)

//go:noescape
func orVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func orSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func xorAVX2(dst, a, b []uint32)

//go:noescape
func xorVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func xorSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func uminAVX2(dst, a, b []uint32)

//go:noescape
func uminVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func uminSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func umaxAVX2(dst, a, b []uint32)

//go:noescape
func umaxVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func umaxSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func sminAVX2(dst, a, b []uint32)

//go:noescape
func sminVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func sminSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func smaxAVX2(dst, a, b []uint32)

//go:noescape
func smaxVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func smaxSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func shlAVX2(dst, a, b []uint32)

//go:noescape
func shlVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func shlSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func shrAVX2(dst, a, b []uint32)

//go:noescape
func shrVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func shrSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func sarAVX2(dst, a, b []uint32)

//go:noescape
func sarVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func sarSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func notAVX2(dst, a []uint32)

//go:noescape
func snegateAVX2(dst, a []uint32)

//go:noescape
func sabsAVX2(dst, a []uint32)
