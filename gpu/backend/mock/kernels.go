package mock

const (
	// elementBlock and byteBlock are the work between two looks at the stop flag:
	// well under a millisecond, also when every page is touched for the first time.
	elementBlock = 32 << 10 // words per binding
	byteBlock    = 256 << 10
)

// The loops go by arrays of 8, so that the compiler checks bounds once for each.

func moveBlock(t *task, lo, hi uint64) bool {
	copy(t.bytes[0][lo:hi], t.bytes[1][lo:hi])
	return true
}

func fillBlock(t *task, lo, hi uint64) bool {
	dst, v := t.words[0][lo:hi], t.pattern
	for len(dst) >= 8 {
		d := (*[8]uint32)(dst)
		d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7] = v, v, v, v, v, v, v, v
		dst = dst[8:]
	}
	for i := range dst {
		dst[i] = v
	}
	return true
}

func vecaddBlock(t *task, lo, hi uint64) bool {
	a, b, c := t.floats[0][lo:hi], t.floats[1][lo:hi], t.floats[2][lo:hi]
	for len(c) >= 8 && len(a) >= 8 && len(b) >= 8 {
		x, y, z := (*[8]float32)(a), (*[8]float32)(b), (*[8]float32)(c)
		z[0] = x[0] + y[0]
		z[1] = x[1] + y[1]
		z[2] = x[2] + y[2]
		z[3] = x[3] + y[3]
		z[4] = x[4] + y[4]
		z[5] = x[5] + y[5]
		z[6] = x[6] + y[6]
		z[7] = x[7] + y[7]
		a, b, c = a[8:], b[8:], c[8:]
	}
	for i := range c {
		c[i] = a[i] + b[i]
	}
	return true
}

func saxpyBlock(t *task, lo, hi uint64) bool {
	x, y, s := t.floats[0][lo:hi], t.floats[1][lo:hi], t.scale
	// The conversion forbids a fused multiply-add, which would round once less on
	// some processors.
	for len(x) >= 8 && len(y) >= 8 {
		a, b := (*[8]float32)(x), (*[8]float32)(y)
		b[0] = float32(s*a[0]) + b[0]
		b[1] = float32(s*a[1]) + b[1]
		b[2] = float32(s*a[2]) + b[2]
		b[3] = float32(s*a[3]) + b[3]
		b[4] = float32(s*a[4]) + b[4]
		b[5] = float32(s*a[5]) + b[5]
		b[6] = float32(s*a[6]) + b[6]
		b[7] = float32(s*a[7]) + b[7]
		x, y = x[8:], y[8:]
	}
	for i := range y {
		y[i] = float32(s*x[i]) + y[i]
	}
	return true
}

// matvecBlock does rows [lo, hi). A row is 8 partial sums, of the columns that
// are equal modulo 8, added pairwise at the end: the same on every host.
func matvecBlock(t *task, lo, hi uint64) bool {
	for r := lo; r < hi; r++ {
		row, x := t.floats[0][r*t.cols:(r+1)*t.cols], t.floats[1][:t.cols]
		var sums [8]float32
		for len(row) > elementBlock { // a multiple of 8
			dot(&sums, row[:elementBlock], x[:elementBlock])
			row, x = row[elementBlock:], x[elementBlock:]
			if t.stopped() {
				return false
			}
		}
		dot(&sums, row, x)
		t.floats[2][r] = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]))
	}
	return true
}

// dot adds the products of a and b to the partial sums.
func dot(sums *[8]float32, a, b []float32) {
	s0, s1, s2, s3, s4, s5, s6, s7 := sums[0], sums[1], sums[2], sums[3], sums[4], sums[5], sums[6], sums[7]
	for len(a) >= 8 && len(b) >= 8 {
		x, y := (*[8]float32)(a), (*[8]float32)(b)
		s0 += float32(x[0] * y[0])
		s1 += float32(x[1] * y[1])
		s2 += float32(x[2] * y[2])
		s3 += float32(x[3] * y[3])
		s4 += float32(x[4] * y[4])
		s5 += float32(x[5] * y[5])
		s6 += float32(x[6] * y[6])
		s7 += float32(x[7] * y[7])
		a, b = a[8:], b[8:]
	}
	*sums = [8]float32{s0, s1, s2, s3, s4, s5, s6, s7}
	for i := range a {
		sums[i] += float32(a[i] * b[i])
	}
}
