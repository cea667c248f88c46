package vec

// Conversions in assembly, in convert_amd64.s.

//go:noescape
func sToFAVX2(dst, a []uint32)

//go:noescape
func uToFAVX2(dst, a []uint32)

//go:noescape
func fToSAVX2(dst, a []uint32)

//go:noescape
func fToUAVX2(dst, a []uint32)

//go:noescape
func sext8AVX2(dst, a []uint32)

//go:noescape
func sext16AVX2(dst, a []uint32)

//go:noescape
func halfToFloatAVX2(dst, a []uint32)

//go:noescape
func floatToHalfAVX2(dst, a []uint32)
