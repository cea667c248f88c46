package native

// Linear layers: y = w·x or y += w·x for a batch of x, the weights in the types of
// model files. An item is a row of w for up to batchBlock rows of x; items follow
// each other along the rows, so that a row of w is read once and used for all of
// them.
//
// A weight is converted to its f32 value before it is used. A sum is a chain of
// fused additions in as many lanes as a register has, whatever the type of w, the
// number of rows that are done together, or the batch. The result of row b of x is
// therefore the same, to the bit, for any other rows in the batch and any place
// among them.

const (
	batchBlock = 64
	mostCols   = 1 << 15 // beyond these, what runs at a time is long
	tileWords  = 1 << 19 // products that one assembly function makes of several of x
	dotWords   = 1 << 18 // that one assembly function reads, or a group of rows if these are more
	tileFlops  = 8       // elements of a batch that take as long as reading one of w

	resultWords = 64 // of w that are read in the time of a result, where few rows are done together
)

// linear is a call's arguments.
type linear struct {
	matrix
	x, y       []float32
	rows       uint64
	batch      uint64
	stride, at uint64 // of y
	add        int
}

// linearShape has one more binding, and word, if there are scales.
func linearShape(t weightType) shape {
	s := shape{bindings: 3, inlineWords: 6, write: 2, write2: -1}
	switch t {
	case typeI8:
		s = shape{bindings: 4, inlineWords: 7, write: 3, write2: -1, bytes: 1 << 0}
	case typeF32:
	default:
		s.alignment(t)
	}
	return s
}

// linearOf parses a call that has the shape. ok is false if the body does not do
// it.
func linearOf(t weightType, c *Call) (l linear, ok bool) {
	x := 1
	if t == typeI8 {
		x = 2
	}

	cols := c.inline(1)
	l.matrix, ok = matrixOf(t, c.Bindings[0], cols)
	l.subnormals = flush
	l.x, l.y = c.f32(x), c.f32(x+1)
	l.rows, l.batch = c.inline(0), c.inline(2)
	if c.inline(3) != 0 {
		l.add = 1
	}

	l.stride, l.at = c.inline(4), c.inline(5)
	if t == typeI8 {
		l.scales, l.group = c.f32(1), c.inline(6)
	}

	return l, ok
}

// fits compares the sizes with the bindings. Nothing overflows: all are below 2^32.
func (l *linear) fits() bool {
	if l.cols == 0 || l.cols > mostCols || l.rows*l.rowBytes > uint64(len(l.w)) || l.batch*l.cols > uint64(len(l.x)) {
		return false
	}
	if l.t == typeI8 && (l.group == 0 || (l.rows*l.cols-1)/l.group >= uint64(len(l.scales))) {
		return false
	}
	if l.batch > 1 && l.stride < l.rows {
		return false
	}
	room := uint64(len(l.y))
	return l.at <= room && l.rows <= room-l.at && (l.batch-1)*l.stride <= room-l.at-l.rows
}

func linearOfType(t weightType) *Body {
	s := linearShape(t)
	return &Body{
		Items: func(c *Call) (uint64, bool) {
			if !s.fits(c) {
				return 0, false
			}
			l, ok := linearOf(t, c)
			if l.rows == 0 || l.batch == 0 {
				return 0, true
			}
			return l.rows * ceilDiv(l.batch, batchBlock), ok && l.fits()
		},
		Run: func(c *Call, lo, hi uint64) bool {
			if lo == hi {
				return true
			}
			l, _ := linearOf(t, c)
			if hi <= l.rows {
				l.run(lo, hi, 0, min(batchBlock, l.batch))
				return true
			}
			for lo < hi {
				block, row := lo/l.rows*batchBlock, lo%l.rows
				n := min(hi-lo, l.rows-row)
				l.run(row, row+n, block, min(block+batchBlock, l.batch))
				lo += n
			}
			return true
		},
		Grain: func(c *Call) uint64 {
			cols, batch := c.inline(1), min(c.inline(2), batchBlock)
			words := cols * (1 + batch/tileFlops)
			if t.inBlocks() && !direct(t) {
				words += cols * (unpackWords - 1)
			}
			if c.inline(0) < 16 {
				words += batch * resultWords
			}
			if t == typeI8 && !groupsDirect(c.inline(6), cols) {
				words += cols * runWords / min(runWords, max(c.inline(6), 1))
			}
			return linearGrain(c, t, max(rowsOnce(), largeGrainOf(words)&^15))
		},
		Nanos: func(c *Call) (uint64, bool) {
			rows, cols, batch := c.inline(0), c.inline(1), c.inline(2)
			if rows == 0 || batch == 0 {
				return callNanos, true
			}
			words := rows * cols * (batch + 1) / 2
			if t == typeI8 && c.inline(6) < 16 {
				words *= 2
			}
			paced := linearPaces[t]
			if t.inBlocks() && !direct(t) {
				paced = unpackedPace
			}
			nanos, ok := paced.nanos(rows*batch/rowsPace, words)
			if t == typeI8 && !(direct(t) && groupsDirect(c.inline(6), cols)) {
				nanos += ceilDiv(batch, batchBlock) * (rows*cols/expandPerNano + runNanos*runsOf(rows, cols, c.inline(6)))
			}
			// The results for a row of x may be far from those of the next.
			far := (batch-1)*c.inline(4) + rows
			return nanos + scattered(batch, batch*rows, far), ok
		},
	}
}

// linearGrain is this many items, or fewer if these would touch too many pages:
// results of each row of x may be in pages of their own, and x may be large if rows
// are few.
func linearGrain(c *Call, t weightType, grain uint64) uint64 {
	rows, cols, batch, stride := c.inline(0), c.inline(1), c.inline(2), c.inline(4)
	if rows == 0 || cols == 0 {
		return 1
	}

	for ; grain > 1; grain /= 2 {
		wide := min(grain, rows)
		blocks := ceilDiv(grain, rows) + 1 // the first and the last may be in part
		some := min(batch, blocks*batchBlock)
		touched := pagesOfRows(some, wide, stride) + pagesOf(some*cols) + 2*pagesOf(wide*cols)
		if t == typeI8 {
			touched += 2 * pagesOf(wide*cols/max(c.inline(6), 1)+1)
		}
		if touched <= mostPages/2 {
			break
		}
	}

	if grain > 16 {
		grain &^= 15
	}

	return grain
}

// linearPaces are for one row of x; a batch takes half as long for each.
var linearPaces = [...]pace{
	typeF32:  {words: 24},
	typeF16:  {words: 28},
	typeBF16: {words: 28},
	typeQ8:   {words: 40},
	typeQ4:   {words: 33},
	typeI8:   {words: 40},

	typeQ41:   {words: 52},
	typeQ50:   {words: 87},
	typeQ51:   {words: 87},
	typeQ2K:   {words: 700},
	typeQ3K:   {words: 900},
	typeQ4K:   {words: 63},
	typeQ5K:   {words: 100},
	typeQ6K:   {words: 100},
	typeIQ4NL: {words: 47},
	typeIQ4XS: {words: 55},
	typeMXFP4: {words: 800},
}

// unpackedPace is that of blocks for which there is no code as they are stored.
var unpackedPace = pace{words: 1000}

// unpackWords is the number of words read in the time that one of blocks takes to
// unpack.
const unpackWords = 4

// expandPerNano is the number of signed bytes expanded in a nanosecond.
const expandPerNano = 12

// runNanos is the time that a run of signed bytes with one scale takes to expand by
// itself.
const runNanos = 9

// runsOf is the number of such runs, once for each block of the batch, if there is
// no code for groups of this size, or groups cross the ends of the expanded parts.
func runsOf(rows, cols, group uint64) uint64 {
	if group == 0 || cols == 0 || groupsAtOnce(group) && rowsExpanded(cols)*cols%group == 0 {
		return 0
	}
	return rows * (cols/group + 1)
}

// rowsPace is the number of rows that together take as long to begin as one by
// rowNanos.
const rowsPace = 12
