package native

// Norms of the heads of queries and keys, in place: an item is a row of the batch.

var headNormShape = shape{bindings: 3, inlineWords: 5, write: 0, write2: -1}

var headNormPace = pace{words: 384}

// headNormSizes are a call's; row is the elements of a row of qkv.
func headNormSizes(c *Call) (heads, kv, dim, batch, row uint64) {
	heads, kv, dim, batch = c.inline(0), c.inline(1), c.inline(2), c.inline(3)
	return heads, kv, dim, batch, (heads + 2*kv) * dim
}

var headNormBody = &Body{
	Items: func(c *Call) (uint64, bool) {
		if !headNormShape.fits(c) {
			return 0, false
		}
		heads, kv, dim, batch, row := headNormSizes(c)
		if batch == 0 || dim == 0 || heads+kv == 0 {
			return 0, true
		}
		// Below 2^33 heads of at most mostHeadDim elements: nothing has wrapped.
		ok := dim <= mostHeadDim && row <= mostWords && batch*row <= c.words(0) &&
			(heads == 0 || dim <= c.words(1)) && (kv == 0 || dim <= c.words(2))
		return batch, ok
	},
	Run: func(c *Call, lo, hi uint64) bool {
		heads, kv, dim, _, row := headNormSizes(c)
		eps := c.inlineF32(4)
		sub := normSubnormals(eps)
		x, q, k := c.f32(0), c.f32(1), c.f32(2)
		for ; lo < hi; lo++ {
			for h := range heads + kv {
				w := q
				if h >= heads {
					w = k
				}
				head := x[lo*row+h*dim:][:dim]
				mean := sumSquares(head, 0, sub) / float32(dim)
				scaleMul(head, head, w[:dim], inverseRoot(mean+eps), sub)
			}
		}
		return true
	},
	Grain: func(c *Call) uint64 {
		_, _, _, _, row := headNormSizes(c)
		return grainOf(4 * row)
	},
	Nanos: func(c *Call) (uint64, bool) {
		heads, kv, dim, batch, _ := headNormSizes(c)
		if batch == 0 || dim == 0 {
			return callNanos, assembly()
		}
		nanos, ok := headNormPace.nanos(batch*(heads+kv), batch*(heads+kv)*dim)
		return nanos, ok && normSubnormals(c.inlineF32(4)) == flush
	},
}
