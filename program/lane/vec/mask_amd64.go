package vec

// Masks and selection in assembly, in mask_amd64.s.

//go:noescape
func selectAVX2(dst, a, b, c []uint32)

//go:noescape
func splatAVX2(dst []uint32, s uint32)

//go:noescape
func splitAVX2(yes, no, cond, mask []uint32) (anyYes, anyNo bool)

//go:noescape
func firstAVX2(mask []uint32) int

//go:noescape
func firstZeroAVX2(a []uint32) int

//go:noescape
func firstZeroOnAVX2(a, mask []uint32) int

//go:noescape
func sameAVX2(a []uint32) bool

//go:noescape
func blendSAVX2(dst []uint32, s uint32, mask []uint32)
