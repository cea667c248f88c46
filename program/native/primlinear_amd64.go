package native

import mathbits "math/bits"

// The functions that linear layers use. All of them give the same bits for a sum.

// rowsOnce is the number of rows that dots does at a time, a power of two.
func rowsOnce() uint64 {
	switch level {
	case levelAVX512:
		return 16
	case levelAVX2:
		return 8
	}
	return 1
}

// vectorsOnce is the number of vectors of a tile.
func vectorsOnce() uint64 {
	switch level {
	case levelAVX512:
		return 4
	case levelAVX2:
		return 2
	}
	return noTiles
}

// direct reports whether there is code for rows of a type.
func direct(t weightType) bool {
	switch t {
	case typeF32:
		return true
	case typeQ2K, typeQ3K, typeMXFP4:
		return false
	}
	return level >= levelAVX512
}

// dotsF32 makes y, a multiple of rowsOnce, the products of the rows of w with x, or
// adds them to it.
func dotsF32(y, w, x []float32, add int) {
	switch {
	case level >= levelAVX512:
		dot16F32AVX512(&y[0], &w[0], &x[0], len(x), len(y)/16, 4*len(x), add)
	case level >= levelAVX2:
		dot8F32AVX2(&y[0], &w[0], &x[0], len(x), len(y)/8, 4*len(x), add)
	default:
		dotsF32Go(y, w, x, add)
	}
}

// dotsOf is dotsF32 of rows of other types.
func dotsOf(t weightType, y []float32, w []byte, x []float32, rowBytes, add int) {
	switch t {
	case typeF16:
		dot16F16AVX512(&y[0], &w[0], &x[0], len(x), len(y)/16, rowBytes, add)
	case typeBF16:
		dot16BF16AVX512(&y[0], &w[0], &x[0], len(x), len(y)/16, rowBytes, add)
	case typeQ8:
		fillHalves()
		dot16Q8AVX512(&y[0], &w[0], &x[0], len(x), len(y)/16, rowBytes, add)
	case typeQ4:
		fillHalves()
		dot16Q4AVX512(&y[0], &w[0], &x[0], len(x), len(y)/16, rowBytes, add)
	case typeIQ4NL:
		fillHalves()
		dot16IQ4NLAVX512(&y[0], &w[0], &x[0], len(x), len(y)/16, rowBytes, add)
	case typeQ41:
		fillHalves()
		dot16Q41AVX512(&y[0], &w[0], &x[0], len(x), len(y)/16, rowBytes, add)
	case typeQ50:
		fillHalves()
		dot16Q50AVX512(&y[0], &w[0], &x[0], len(x), len(y)/16, rowBytes, add)
	case typeQ51:
		fillHalves()
		dot16Q51AVX512(&y[0], &w[0], &x[0], len(x), len(y)/16, rowBytes, add)
	default:
		dotsOfLarge(t, y, w, x, rowBytes, add)
	}
}

// largeScratch is room for the scales of a block of 256 columns of sixteen rows, sixteen for
// each, and as much for bits that are elsewhere in a block than the rest.
type largeScratch [2 * 16 * 16]float32

// dotsOfLarge is of the types with blocks of 256 columns.
func dotsOfLarge(t weightType, y []float32, w []byte, x []float32, rowBytes, add int) {
	var s largeScratch
	switch t {
	case typeQ4K:
		dot16Q4KAVX512(&y[0], &w[0], &x[0], &s[0], len(x), len(y)/16, rowBytes, add)
	case typeQ5K:
		dot16Q5KAVX512(&y[0], &w[0], &x[0], &s[0], len(x), len(y)/16, rowBytes, add)
	case typeIQ4XS:
		dot16IQ4XSAVX512(&y[0], &w[0], &x[0], &s[0], len(x), len(y)/16, rowBytes, add)
	case typeQ6K:
		dot16Q6KAVX512(&y[0], &w[0], &x[0], &s[0], len(x), len(y)/16, rowBytes, add)
	}
}

// expandAtOnce makes dst the values of whole blocks, if there is code for their type. It
// takes subnormal numbers for zeros; none is a value of these types.
func expandAtOnce(t weightType, dst []float32, w []byte) bool {
	if level < levelAVX512 || !t.inBlocks() || !direct(t) || len(dst) == 0 {
		return false
	}

	n := len(dst) / int(blocks[t].values)
	var s largeScratch
	fillHalves()
	switch t {
	case typeIQ4NL:
		expandIQ4NLAVX512(&dst[0], &w[0], n)
	case typeQ41:
		expandQ41AVX512(&dst[0], &w[0], n)
	case typeQ50:
		expandQ50AVX512(&dst[0], &w[0], n)
	case typeQ51:
		expandQ51AVX512(&dst[0], &w[0], n)
	case typeQ4K:
		expandQ4KAVX512(&dst[0], &w[0], &s[0], n)
	case typeQ5K:
		expandQ5KAVX512(&dst[0], &w[0], &s[0], n)
	case typeIQ4XS:
		expandIQ4XSAVX512(&dst[0], &w[0], &s[0], n)
	case typeQ6K:
		expandQ6KAVX512(&dst[0], &w[0], &s[0], n)
	}
	return true
}

// groupsDirect reports whether there is code for rows of signed bytes with a scale
// for each group of this size.
func groupsDirect(group, cols uint64) bool {
	return group > 0 && cols%group == 0 && (group%16 == 0 || group < 16 && group&(group-1) == 0)
}

// dotsI8 is of rows of signed bytes and their scales, one for each group of a row, as
// groupsDirect has allowed.
func dotsI8(y []float32, w []byte, s, x []float32, group, add int) {
	perRow := len(x) / group
	if group < 16 {
		for ; len(y) > 0; y, w, s = y[16:], w[16*len(x):], s[16*perRow:] {
			dot16I8SmallAVX512(&y[0], &w[0], &s[0], &x[0], len(x), mathbits.TrailingZeros(uint(group)), 4*perRow, add)
		}
		return
	}
	for ; len(y) > 0; y, w, s = y[16:], w[16*len(x):], s[16*perRow:] {
		dot16I8AVX512(&y[0], &w[0], &s[0], &x[0], group, perRow, len(x), 4*perRow, add)
	}
}

// dot1 is the product of one row with x.
func dot1(w, x []float32) float32 {
	switch {
	case level >= levelAVX512:
		return dot1F32AVX512(&w[0], &x[0], len(x))
	case level >= levelAVX2:
		return dot1F32AVX2(&w[0], &x[0], len(x))
	}
	return dotGo(w, x)
}

// tileF32 does the rows of w, a multiple of four, with vectorsOnce rows of x. The
// results of one of x are ystride elements from those of the one before.
func tileF32(y, w, x []float32, cols, ystride, add int) {
	quads := len(w) / cols / 4
	if level >= levelAVX512 {
		_ = y[3*ystride+4*quads-1]
		tile4x4F32AVX512(&y[0], &w[0], &x[0], cols, quads, 4*cols, 4*cols, 4*ystride, add)
		return
	}
	_ = y[ystride+4*quads-1]
	tile4x2F32AVX2(&y[0], &w[0], &x[0], cols, quads, 4*cols, 4*cols, 4*ystride, add)
}

func expandF16(dst []float32, w []byte) {
	switch {
	case level >= levelAVX512:
		expandF16AVX512(dst, w)
	case level >= levelAVX2:
		expandF16AVX2(dst, w)
	default:
		expandF16Go(dst, w)
	}
}

func expandBF16(dst []float32, w []byte) {
	switch {
	case level >= levelAVX512:
		expandBF16AVX512(dst, w)
	case level >= levelAVX2:
		expandBF16AVX2(dst, w)
	default:
		expandBF16Go(dst, w)
	}
}

func expandQ4(dst []float32, w []byte) {
	switch {
	case level >= levelAVX512:
		fillHalves()
		expandQ4AVX512(dst, w)
	case level >= levelAVX2:
		expandQ4AVX2(dst, w)
	default:
		expandQ4Go(dst, w)
	}
}

// expandI8 is of a run with one scale.
func expandI8(dst []float32, w []byte, s float32, sub subnormals) {
	if level >= levelAVX2 {
		expandI8AVX2(dst, w, s, sub)
		return
	}
	expandI8Go(dst, w, s)
}

// groupsAtOnce reports whether expandGroups handles groups of this size.
func groupsAtOnce(group uint64) bool {
	return level >= levelAVX2 && group > 0 && (group%8 == 0 || group <= 4 && group != 3)
}

// expandGroups expands whole groups, each with its scale. It returns how many
// values it did.
func expandGroups(dst []float32, w []byte, s []float32, group uint64, sub subnormals) (n uint64) {
	switch {
	case !groupsAtOnce(group) || len(dst) == 0:
	case group%8 == 0:
		n = uint64(len(dst)) / group * group
		if n > 0 {
			expandI8GroupsAVX2(dst[:n], w, &s[0], int(group), sub)
		}
	default:
		n = uint64(len(dst)) &^ 7
		expandI8SmallAVX2(dst[:n], w, &s[0], mathbits.TrailingZeros64(group), sub)
	}
	return n
}

// expandScales makes dst, whole groups of a multiple of eight, signed bytes times the
// scale of each group.
func expandScales(dst []float32, q []byte, scales *[16]float32, group int, sub subnormals) {
	if level >= levelAVX2 {
		expandI8GroupsAVX2(dst, q, &scales[0], group, sub)
		return
	}
	expandScalesGo(dst, q, scales, group)
}

// expandOffsets adds the offset of each group.
func expandOffsets(dst []float32, q []byte, scales, offsets *[16]float32, group int, sub subnormals) {
	if level >= levelAVX2 {
		expandI8OffsetsAVX2(dst, q, &scales[0], &offsets[0], group, sub)
		return
	}
	expandOffsetsGo(dst, q, scales, offsets, group)
}
