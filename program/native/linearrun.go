package native

import "sync"

// A piece of a linear layer is computed from rows as they are stored, if there is
// code for their type and x has few rows; otherwise rows are expanded first, and
// then used for all of x.

const (
	expandMost = 1 << 16 // weights that are expanded at a time
	nearWords  = 6 << 10 // that are used again soon
)

// expansion has rows of weights as f32.
type expansion [expandMost]float32

var expansions = sync.Pool{New: func() any { return new(expansion) }}

// run does rows r0 to r1-1 of w with rows b0 to b1-1 of x.
func (l *linear) run(r0, r1, b0, b1 uint64) {
	if l.direct() && b1-b0 < vectorsOnce() {
		l.stored(r0, r1, b0, b1)
		return
	}
	if l.t == typeF32 {
		for r := r0; r < r1; {
			n := min(rowsTogether(l.cols), r1-r)
			l.together(f32s(l.w[r*l.rowBytes:][:n*l.rowBytes]), r, n, b0, b1)
			r += n
		}
		return
	}
	e := expansions.Get().(*expansion)
	l.expanded(e, r0, r1, b0, b1)
	expansions.Put(e)
}

// direct reports whether there is code for rows as they are stored.
func (l *linear) direct() bool {
	return direct(l.t) && (l.t != typeI8 || groupsDirect(l.group, l.cols))
}

// stored does rows as they are stored.
func (l *linear) stored(r0, r1, b0, b1 uint64) {
	once := rowsOnce()
	whole := r0 + (r1-r0)&^(once-1)
	step := once
	switch {
	case b1-b0 > 1:
		step = rowsTogether(l.cols)
	case (r1-r0)*l.cols <= dotWords:
		step = r1 - r0
	default:
		step = max(once, dotWords/l.cols&^(once-1))
	}

	for r := r0; r < whole; r += step {
		n := min(step, whole-r)
		for b := b0; b < b1; b++ {
			l.dots(l.y[b*l.stride+l.at+r:][:n], r, b, l.add)
		}
	}

	switch n := r1 - whole; {
	case n == 0:
	case l.rows >= once:
		// Include rows beside them, with sums that are not used.
		start := r1 - min(r1, once)
		for b := b0; b < b1; b++ {
			var sums [16]float32
			l.dots(sums[:once], start, b, 0)
			l.put(sums[whole-start:][:n], whole, b)
		}
	case l.t == typeF32:
		l.together(f32s(l.w[whole*l.rowBytes:r1*l.rowBytes]), whole, n, b0, b1)
	default:
		e := expansions.Get().(*expansion)
		l.expanded(e, whole, r1, b0, b1)
		expansions.Put(e)
	}
}

// put stores or adds sums of the rows from r on.
func (l *linear) put(sums []float32, r, b uint64) {
	y := l.y[b*l.stride+l.at+r:][:len(sums)]
	for i, s := range sums {
		if l.add != 0 {
			s = flushed(s + flushed(y[i]))
		}
		y[i] = s
	}
}

// dots does len(y), a multiple of rowsOnce, rows from r on with row b of x.
func (l *linear) dots(y []float32, r, b uint64, add int) {
	x := l.x[b*l.cols:][:l.cols]
	w := l.w[r*l.rowBytes:][:uint64(len(y))*l.rowBytes]
	switch l.t {
	case typeF32:
		dotsF32(y, f32s(w), x, add)
	case typeI8:
		perRow := l.cols / l.group
		dotsI8(y, w, l.scales[r*perRow:][:uint64(len(y))*perRow], x, int(l.group), add)
	default:
		dotsOf(l.t, y, w, x, int(l.rowBytes), add)
	}
}

// rowsTogether is the number of rows that are done for all of x before others, a
// multiple of sixteen: as many as stay in the nearest cache.
func rowsTogether(cols uint64) uint64 { return max(16, nearWords/cols&^15) }

// rowsExpanded is the number of rows expanded at a time.
func rowsExpanded(cols uint64) uint64 { return max(1, min(rowsTogether(cols), expandMost/cols&^3)) }

// expanded expands rows, as many at a time as there is room for.
func (l *linear) expanded(e *expansion, r0, r1, b0, b1 uint64) {
	atOnce := rowsExpanded(l.cols)
	for r := r0; r < r1; {
		n := min(atOnce, r1-r)
		l.expand(e[:], r, n)
		l.together(e[:n*l.cols], r, n, b0, b1)
		r += n
	}
}

// together does n rows, from r on, with the values w.
func (l *linear) together(w []float32, r, n, b0, b1 uint64) {
	b, cols := b0, l.cols
	if quads := n / 4; quads > 0 {
		tiled, once := quads*4, vectorsOnce()
		step := max(4, tileWords/(once*cols)&^3)
		for ; b+once <= b1; b += once {
			for i := uint64(0); i < tiled; i += step {
				tileF32(l.y[b*l.stride+l.at+r+i:], w[i*cols:min(i+step, tiled)*cols], l.x[b*cols:][:once*cols], int(cols), int(l.stride), l.add)
			}
			for i := b; i < b+once; i++ {
				l.rows1(w, tiled, r, n, i)
			}
		}
	}

	whole := n &^ (rowsOnce() - 1)
	for ; b < b1; b++ {
		if whole > 0 {
			dotsF32(l.y[b*l.stride+l.at+r:][:whole], w[:whole*cols], l.x[b*cols:][:cols], l.add)
		}
		l.rows1(w, whole, r, n, b)
	}
}

// rows1 does rows i to n-1 of w, one by one.
func (l *linear) rows1(w []float32, i, r, n, b uint64) {
	for ; i < n; i++ {
		sum := [1]float32{dot1(w[i*l.cols:][:l.cols], l.x[b*l.cols:][:l.cols])}
		l.put(sum[:], r+i, b)
	}
}
