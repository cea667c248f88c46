package vec

// Client memory in assembly, in memory_amd64.s.

//go:noescape
func gather32AVX2(dst, idx []uint32, mem []byte) int

//go:noescape
func gatherMaskAVX2(dst, idx, mask []uint32, mem []byte) int

//go:noescape
func scatter32AVX2(mem []byte, idx, src []uint32)

//go:noescape
func loadSeq32AVX2(dst []uint32, mem []byte)

//go:noescape
func storeSeq32AVX2(mem []byte, src []uint32)

//go:noescape
func scatterMaskAVX2(mem []byte, idx, mask, src []uint32)

//go:noescape
func gatherBytesAVX2(dst, idx []uint32, mem []byte, safe, shift, keep uint32) int
