package native

// Matrix times vector: an item is a row. Rows are done four at a time while there
// are enough; a row's sum is the same either way.

var matvecShape = shape{bindings: 3, inlineWords: 2, write: 2, write2: -1}

// matvecBody serves both variants: they differ only in the order of their sums.
var matvecBody = &Body{
	Items: func(c *Call) (uint64, bool) {
		if !matvecShape.fits(c) {
			return 0, false
		}
		rows, cols := c.inline(0), c.inline(1)
		ok := cols > 0 && cols <= mostWords && cols <= c.words(1) &&
			rows <= c.words(2) && rows*cols <= c.words(0)
		return rows, ok
	},
	Run: func(c *Call, lo, hi uint64) bool {
		cols := c.inline(1)
		m, x, y := c.f32(0), c.f32(1)[:cols], c.f32(2)
		step := rowsAtOnce(cols)
		for lo < hi {
			end := min(hi, lo+step)
			dotRows(y[lo:end], m[lo*cols:end*cols], x, int(cols))
			lo = end
		}
		return true
	},
	Grain: func(c *Call) uint64 { return rowsAtOnce(c.inline(1)) },
	Nanos: func(c *Call) (uint64, bool) {
		return pace{words: 128}.nanos(c.inline(0), c.inline(0)*c.inline(1))
	},
}

// rowsAtOnce keeps one call of assembly, which nothing can interrupt, short.
func rowsAtOnce(cols uint64) uint64 {
	if cols <= grainWords/2 {
		return max(4, grainOf(cols)&^3)
	}
	return 1
}

var matvecQ8Shape = shape{bindings: 3, inlineWords: 2, write: 2, write2: -1, halves: 1 << 0}

// matvecQ8Body serves both variants too. A block's products are added up before the
// scale is multiplied.
var matvecQ8Body = &Body{
	Items: func(c *Call) (uint64, bool) {
		if !matvecQ8Shape.fits(c) {
			return 0, false
		}
		rows, cols := c.inline(0), c.inline(1)
		ok := cols > 0 && cols%q8Values == 0 && cols <= mostWords && cols <= c.words(1) &&
			rows <= c.words(2) && rows*(cols/q8Values) <= uint64(len(c.Bindings[0])/q8Bytes)
		return rows, ok
	},
	Run: func(c *Call, lo, hi uint64) bool {
		cols := c.inline(1)
		w, x, y := c.Bindings[0], c.f32(1)[:cols], c.f32(2)
		rowBytes := cols / q8Values * q8Bytes
		step := rowsAtOnce(cols)
		for lo < hi {
			end := min(hi, lo+step)
			dotRowsQ8(y[lo:end], w[lo*rowBytes:end*rowBytes], x)
			lo = end
		}
		return true
	},
	Grain: func(c *Call) uint64 { return rowsAtOnce(c.inline(1)) },
	Nanos: func(c *Call) (uint64, bool) {
		return pace{words: 128}.nanos(c.inline(0), c.inline(0)*c.inline(1))
	},
}
