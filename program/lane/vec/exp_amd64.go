package vec

// In assembly, in exp_amd64.s.

//go:noescape
func expAVX2(dst, a []uint32)

//go:noescape
func exp2AVX2(dst, a []uint32)

//go:noescape
func inverseSqrtAVX2(dst, a []uint32)
