package vec

// Comparisons in assembly, in compare_amd64.s.

//go:noescape
func ieqAVX2(dst, a, b []uint32)

//go:noescape
func ieqVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func ieqSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func ineAVX2(dst, a, b []uint32)

//go:noescape
func ineVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func ineSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func sgtAVX2(dst, a, b []uint32)

//go:noescape
func sgtVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func sgtSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func sltAVX2(dst, a, b []uint32)

//go:noescape
func sltVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func sltSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func sleAVX2(dst, a, b []uint32)

//go:noescape
func sleVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func sleSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func sgeAVX2(dst, a, b []uint32)

//go:noescape
func sgeVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func sgeSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func uleAVX2(dst, a, b []uint32)

//go:noescape
func uleVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func uleSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func ugeAVX2(dst, a, b []uint32)

//go:noescape
func ugeVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func ugeSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func ugtAVX2(dst, a, b []uint32)

//go:noescape
func ugtVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func ugtSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func ultAVX2(dst, a, b []uint32)

//go:noescape
func ultVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func ultSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func foeqAVX2(dst, a, b []uint32)

//go:noescape
func foeqVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func foeqSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func fueqAVX2(dst, a, b []uint32)

//go:noescape
func fueqVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func fueqSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func foneAVX2(dst, a, b []uint32)

//go:noescape
func foneVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func foneSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func funeAVX2(dst, a, b []uint32)

//go:noescape
func funeVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func funeSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func foltAVX2(dst, a, b []uint32)

//go:noescape
func foltVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func foltSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func fultAVX2(dst, a, b []uint32)

//go:noescape
func fultVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func fultSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func fogtAVX2(dst, a, b []uint32)

//go:noescape
func fogtVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func fogtSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func fugtAVX2(dst, a, b []uint32)

//go:noescape
func fugtVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func fugtSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func foleAVX2(dst, a, b []uint32)

//go:noescape
func foleVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func foleSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func fuleAVX2(dst, a, b []uint32)

//go:noescape
func fuleVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func fuleSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func fogeAVX2(dst, a, b []uint32)

//go:noescape
func fogeVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func fogeSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func fugeAVX2(dst, a, b []uint32)

//go:noescape
func fugeVSAVX2(dst, a []uint32, s uint32)

//go:noescape
func fugeSVAVX2(dst, a []uint32, s uint32)

//go:noescape
func isNanAVX2(dst, a []uint32)

//go:noescape
func isInfAVX2(dst, a []uint32)
