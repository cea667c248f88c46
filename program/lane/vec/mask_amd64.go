package vec

// Masks and selection in assembly, in mask_amd64.s.

//go:noescape
func andNotAVX2(dst, a, b []uint32)

//go:noescape
func selectAVX2(dst, a, b, c []uint32)

//go:noescape
func splatAVX2(dst []uint32, s uint32)

//go:noescape
func splitAVX2(yes, no, cond, mask []uint32) (anyYes, anyNo bool)

//go:noescape
func countAVX2(mask []uint32) int

//go:noescape
func firstAVX2(mask []uint32) int

//go:noescape
func firstZeroAVX2(a []uint32) int

//go:noescape
func firstZeroOnAVX2(a, mask []uint32) int

//go:noescape
func firstAboveAVX2(a []uint32, top uint32) int

//go:noescape
func firstAboveOnAVX2(a, mask []uint32, top uint32) int

//go:noescape
func sameAVX2(a []uint32) bool

//go:noescape
func blendSAVX2(dst []uint32, s uint32, mask []uint32)
