package vec

// Rows of client memory in assembly, in affine_amd64.s: w words each, the rows
// step bytes apart, the first word at byte at. All of them are in mem.

//go:noescape
func copyRowsAVX2(dst []uint32, mem []byte, at, step, w int)

//go:noescape
func splatRowsAVX2(dst []uint32, mem []byte, at, step, w int)

// gatherRowsAVX2 takes words that are x bytes apart, less than 2^28, shifts them
// right and keeps the bits of keep.
//
//go:noescape
func gatherRowsAVX2(dst []uint32, mem []byte, at, x, step, w int, shift, keep uint32)

//go:noescape
func uncopyRowsAVX2(mem []byte, at, step, w int, src []uint32)

// mulAddRowsAVX2 takes one word of p for each row, and w of q.
//
//go:noescape
func mulAddRowsAVX2(dst, c []uint32, p []byte, pAt, pStep int, q []byte, qAt, qStep, w int)

//go:noescape
func uncopyRowsMaskAVX2(mem []byte, at, step, w int, src, mask []uint32)
