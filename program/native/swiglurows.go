package native

// The activation of a batch: each row of x has n elements a and then n elements b; an
// item is a row.

var swigluRowsShape = shape{bindings: 2, inlineWords: 1, write: 1, write2: -1}

var swigluRowsPace = pace{words: 256, exps: true}

// swigluRowCount is the number of whole rows that both x and y have.
func swigluRowCount(c *Call) uint64 {
	n := c.inline(0)
	if n == 0 {
		return 0
	}
	return min(c.words(0)/2/n, c.words(1)/n)
}

var swigluRowsBody = &Body{
	Items: func(c *Call) (uint64, bool) {
		if !swigluRowsShape.fits(c) {
			return 0, false
		}
		rows := swigluRowCount(c)
		return rows, rows == 0 || c.inline(0) <= mostWords
	},
	Run: func(c *Call, lo, hi uint64) bool {
		n := c.inline(0)
		x, y := c.f32(0), c.f32(1)
		for ; lo < hi; lo++ {
			row := x[lo*2*n:][:2*n]
			swiglu(y[lo*n:][:n], row[:n], row[n:])
		}
		return true
	},
	Grain: func(c *Call) uint64 { return grainOf(4 * c.inline(0)) },
	Nanos: func(c *Call) (uint64, bool) {
		rows := swigluRowCount(c)
		return swigluRowsPace.nanos(rows, rows*c.inline(0))
	},
}
