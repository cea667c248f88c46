package vec

// Client memory in assembly, in memory_amd64.s.

//go:noescape
func gather32AVX2(dst, idx []uint32, mem []byte) int

//go:noescape
func gatherMaskAVX2(dst, idx, mask []uint32, mem []byte) int
