package native

// Attention to a cache in pages: an item is a head of a row of the batch. The
// positions are done attendStep at a time, and earlier sums are rescaled when a new
// maximum comes up. The result of a row is independent of the others.

const (
	attendStep = 512
	attendRun  = 16 // maximal number of positions with places looked up together
	mostHeads  = 16 // that are done together
)

var attentionCacheShape = shape{bindings: 6, inlineWords: 9, write: 5, write2: -1}

var attentionCacheBody = &Body{
	Items: func(c *Call) (uint64, bool) {
		if !attentionCacheShape.fits(c) {
			return 0, false
		}
		q := cachedOf(c, 1, 4)
		if q.batch == 0 || q.heads == 0 || q.dim == 0 {
			return 0, true
		}
		ok := q.fits() && q.batch*(q.heads*q.dim) <= c.words(5)
		return q.batch * q.heads, ok
	},
	Run: func(c *Call, lo, hi uint64) bool {
		if lo == hi {
			return true
		}
		q := cachedOf(c, 1, 4)
		q.window, q.scale, q.limit = c.inline(6), c.inlineF32(7), c.inlineF32(8)
		a := attends.Get().(*attend)
		ok := a.items(&q, c.f32(5), lo, hi, c.Stop)
		attends.Put(a)
		return ok
	},
	Grain: func(c *Call) uint64 {
		q := cachedOf(c, 1, 4)
		if q.batch == 0 || q.heads == 0 || q.dim == 0 {
			return 1
		}
		most := q.most(c)
		each := 2*q.dim + 2*most*(q.dim+positionWords)
		grain := largeGrainOf(each)
		if share := q.heads / q.kv; grain < share && share*each <= 4*mostWords {
			grain = share // they have the same keys and values
		}
		return min(grain, max(1, mostPages/2/(q.pagesOf(c, most)+1)))
	},
	Nanos: func(c *Call) (uint64, bool) {
		// As if every row were in the middle of what its sequence may be.
		q := cachedOf(c, 1, 4)
		if q.batch == 0 || q.heads == 0 || q.dim == 0 {
			return callNanos, assembly()
		}
		all := q.batch * q.heads
		positions := ceilDiv(min(q.pages*q.page, longestTimedRow), 2)
		if window := c.inline(6); window != 0 {
			positions = min(positions, window)
		}
		nanos, ok := attentionPace.nanos(6*all, all*positions*(4*q.dim+8))
		if c.inlineF32(8) > 0 {
			nanos += all * positions * cappedNanos
		}
		read := 2 * q.batch * positions
		return nanos + scattered(ceilDiv(read, q.page), read*q.width, uint64(len(q.k)+len(q.v))), ok
	},
}

var attentionPace = pace{words: 20, exps: true}

// cappedNanos is the time of a score with a cap.
const cappedNanos = 6

// longestTimedRow caps the positions in the estimated time of a row.
const longestTimedRow = 1 << 20

// most is the number of positions to which a row may attend, as Grain counts them:
// those that the table reaches, up to about a millisecond of work. A longer row is
// done like the others, and checks for a stop.
func (q *cached) most(c *Call) uint64 {
	n := min(q.pages*q.page, mostHeadValues/(q.dim+positionWords))
	if n <= q.page || q.pagesOf(c, n) <= mostPages/2 {
		return n
	}
	return min(n, mostPages/2/q.pagesOf(c, q.page)*q.page)
}

// pagesOf bounds the pages of memory of this many positions of a head.
func (q *cached) pagesOf(c *Call, positions uint64) uint64 {
	page := min(q.page, positions)
	each := pages(c.Bindings[3], page, q.dim, q.width) + pages(c.Bindings[4], page, q.dim, q.width)
	all := pagesOf(uint64(len(q.k))) + pagesOf(uint64(len(q.v)))
	return min(all, ceilDiv(positions, q.page)*each)
}
