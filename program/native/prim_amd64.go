package native

// One function per loop that matters, by instruction set. All of them trust their
// lengths: the caller has compared them with the bindings'.

func fill(dst []uint32, v uint32) {
	if level >= levelAVX2 {
		fillAVX2(dst, v)
		return
	}
	fillGo(dst, v)
}

func add(dst, a, b []float32) {
	if level >= levelAVX2 {
		addAVX2(dst, a, b)
		return
	}
	addGo(dst, a, b)
}

func saxpy(dst, x []float32, a float32) {
	if level >= levelAVX2 {
		saxpyAVX2(dst, x, a)
		return
	}
	saxpyGo(dst, x, a)
}

func scale(dst, x []float32, s float32) {
	if level >= levelAVX2 {
		scaleAVX2(dst, x, s)
		return
	}
	scaleGo(dst, x, s)
}

func scaleHeads(dst, x, total []float32, dim int) {
	if level >= levelAVX2 {
		scaleHeadsAVX2(dst, x, total, dim)
		return
	}
	scaleHeadsGo(dst, x, total, dim)
}

func scaleMul(dst, x, w []float32, s float32, sub subnormals) {
	if level >= levelAVX2 {
		scaleMulAVX2(dst, x, w, s, sub)
		return
	}
	scaleMulGo(dst, x, w, s)
}

func norm(dst, x, w, b []float32, mean, s float32, sub subnormals) {
	if level >= levelAVX2 {
		normAVX2(dst, x, w, b, mean, s, sub)
		return
	}
	normGo(dst, x, w, b, mean, s)
}

func rotate(dst, c, s []float32) {
	if level >= levelAVX2 {
		rotateAVX2(dst, c, s)
		return
	}
	rotateGo(dst, c, s)
}

func rotateHalves(x, c, s []float32) {
	if level >= levelAVX2 && len(c) > 0 {
		rotateHalvesAVX2(x, c, s)
		return
	}
	rotateHalvesGo(x, c, s)
}

func expSum(dst, x []float32, sub float32) float32 {
	if level >= levelAVX2 {
		return expSumAVX2(dst, x, sub)
	}
	return expSumGo(dst, x, sub)
}

func swiglu(dst, a, b []float32) {
	if level >= levelAVX512 {
		swigluAVX512(dst, a, b)
		return
	}
	if level >= levelAVX2 {
		swigluAVX2(dst, a, b)
		return
	}
	swigluGo(dst, a, b)
}

func sum(x []float32, sub subnormals) float32 {
	if level >= levelAVX2 {
		return sumAVX2(x, sub)
	}
	return sumGo(x)
}

func sumSquares(x []float32, mean float32, sub subnormals) float32 {
	if level >= levelAVX2 {
		return sumSquaresAVX2(x, mean, sub)
	}
	return sumSquaresGo(x, mean)
}

func largest(x []float32) float32 {
	if level >= levelAVX2 {
		return maxAVX2(x)
	}
	return largestGo(x)
}

func findAbove(x []float32, t float32) int {
	if level >= levelAVX2 {
		return findAboveAVX2(x, t)
	}
	return findAboveGo(x, t)
}

func firstNumber(x []float32) int {
	if level >= levelAVX2 {
		return firstNumberAVX2(x)
	}
	return firstNumberGo(x)
}

func dotRows(y, m, x []float32, stride int) {
	switch {
	case level >= levelAVX512:
		dotRowsAVX512(y, m, x, stride)
	case level >= levelAVX2:
		dotRowsAVX2(y, m, x, stride)
	default:
		dotRowsGo(y, m, x, stride)
	}
}

func axpyRows(acc, m, p []float32, stride int) {
	if level >= levelAVX2 {
		axpyRowsAVX2(acc, m, p, stride)
		return
	}
	axpyRowsGo(acc, m, p, stride)
}

func dotRowsQ8(y []float32, w []byte, x []float32) {
	switch {
	case level >= levelAVX512:
		fillHalves()
		dotRowsQ8AVX512(y, w, x)
	case level >= levelAVX2:
		fillHalves()
		dotRowsQ8AVX2(y, w, x)
	default:
		dotRowsQ8Go(y, w, x)
	}
}

func expandQ8(dst []float32, w []byte) {
	switch {
	case level >= levelAVX512:
		fillHalves()
		expandQ8AVX512(dst, w)
	case level >= levelAVX2:
		expandQ8AVX2(dst, w)
	default:
		expandQ8Go(dst, w)
	}
}

// tileCols is the number of columns of a tile of a matrix product.
func tileCols() int {
	if level == levelAVX2 {
		return 16
	}
	return 32
}

// mostFlops is the number of operations of a matrix product in about a millisecond.
func mostFlops() uint64 {
	if level == levelGo {
		return mostFlopsGo
	}
	return 48 << 20
}

// tile does as many rows of a product as the largest possible tile, and returns how
// many.
func tile(rows, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int, add int) int {
	switch {
	case level >= levelAVX512 && rows >= 12:
		gemm12x32AVX512(k, &a[0], lda, &b[0], ldb, &c[0], ldc, add)
		return 12

	case level >= levelAVX512 && rows >= 4:
		gemm4x32AVX512(k, &a[0], lda, &b[0], ldb, &c[0], ldc, add)
		return 4

	case level >= levelAVX512:
		gemm1x32AVX512(k, &a[0], lda, &b[0], ldb, &c[0], ldc, add)
		return 1

	case level >= levelAVX2 && rows >= 6:
		gemm6x16AVX2(k, &a[0], lda, &b[0], ldb, &c[0], ldc, add)
		return 6

	case level >= levelAVX2 && rows >= 2:
		gemm2x16AVX2(k, &a[0], lda, &b[0], ldb, &c[0], ldc, add)
		return 2

	case level >= levelAVX2:
		gemm1x16AVX2(k, &a[0], lda, &b[0], ldb, &c[0], ldc, add)
		return 1
	}

	gemm1x32Go(k, a, b, ldb, c, add)
	return 1
}
