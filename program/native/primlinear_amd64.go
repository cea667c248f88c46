package native

// What linear layers need. A sum has the same bits from each of them.

// rowsOnce is how many rows dots does at a time.
func rowsOnce() uint64 {
	switch level {
	case levelAVX512:
		return 16
	case levelAVX2:
		return 8
	}
	return 1
}

// vectorsOnce is how many vectors a tile has.
func vectorsOnce() uint64 {
	switch level {
	case levelAVX512:
		return 4
	case levelAVX2:
		return 2
	}
	return noTiles
}

// direct says whether there is code for rows of a type.
func direct(t weightType) bool { return t == typeF32 || level >= levelAVX512 }

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
		dot16Q8AVX512(&y[0], &w[0], &x[0], len(x), len(y)/16, rowBytes, add)
	case typeQ4:
		dot16Q4AVX512(&y[0], &w[0], &x[0], len(x), len(y)/16, rowBytes, add)
	}
}

// dotsI8 is of rows of signed bytes and their scales, one for each group of a row.
func dotsI8(y []float32, w []byte, s, x []float32, group, add int) {
	perRow := len(x) / group
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
	if level >= levelAVX2 {
		expandF16AVX2(dst, w)
		return
	}
	expandF16Go(dst, w)
}

func expandBF16(dst []float32, w []byte) {
	if level >= levelAVX2 {
		expandBF16AVX2(dst, w)
		return
	}
	expandBF16Go(dst, w)
}

func expandQ4(dst []float32, w []byte) {
	if level >= levelAVX2 {
		expandQ4AVX2(dst, w)
		return
	}
	expandQ4Go(dst, w)
}

func expandI8(dst []float32, w []byte, s float32) {
	if level >= levelAVX2 {
		expandI8AVX2(dst, w, s)
		return
	}
	expandI8Go(dst, w, s)
}
