package native

import (
	mathbits "math/bits"
	"sync/atomic"
)

// cached is the common part of rope_cache_f32 and attention_cache_f32: queries,
// keys and values of a batch, and a cache of keys and values in pages. Rows and
// table are memory, which may change: each value of them is read once, and bounded.
type cached struct {
	heads, kv, dim, batch, page, pages uint64

	qkv, k, v   []float32
	rows, table []uint32

	row, width uint64 // elements of a row of qkv, and of a position of k or v
	sequences  uint64 // that the table has
	held       uint64 // pages that k and v both have
	shift      uint   // a position's page is position >> shift

	// Attention has these: the positions that count, 0 for all; the factor of scores, and their cap.
	window       uint64
	scale, limit float32
}

// cachedOf takes bindings and inline words from page on; the others are the first.
func cachedOf(c *Call, rows, page int) cached {
	q := cached{
		heads: c.inline(0), kv: c.inline(1), dim: c.inline(2), batch: c.inline(3),
		page: c.inline(page), pages: c.inline(page + 1),
		qkv: c.f32(0), rows: c.u32(rows), table: c.u32(rows + 1), k: c.f32(rows + 2), v: c.f32(rows + 3),
	}
	q.row, q.width = (q.heads+2*q.kv)*q.dim, q.kv*q.dim
	q.sequences = uint64(len(q.table)) / max(q.pages, 1)
	if whole := q.page * q.width; whole > 0 {
		q.held = min(uint64(len(q.k)), uint64(len(q.v))) / whole
	}
	q.shift = uint(mathbits.TrailingZeros64(q.page))
	return q
}

// fits reports whether the sizes are valid for the programs, with a batch and a dim
// that are not 0, and the body supports them. (A dim or row that is too large may
// have made the other products wrap, so these are checked first.)
func (q *cached) fits() bool {
	return q.dim <= mostHeadDim && q.row <= mostWords && q.kv != 0 && q.heads%q.kv == 0 && q.page != 0 && q.page&(q.page-1) == 0 &&
		q.page*q.width <= 1<<32 &&
		q.batch*q.row <= uint64(len(q.qkv)) && q.batch <= uint64(len(q.rows))/2
}

// at reads where row b is in its sequence.
func (q *cached) at(b uint64) (position, sequence uint64) {
	return uint64(atomic.LoadUint32(&q.rows[2*b])), uint64(atomic.LoadUint32(&q.rows[2*b+1]))
}

// reaches reports whether the table has a page for a position of a sequence.
func (q *cached) reaches(position, sequence uint64) bool {
	return position>>q.shift < q.pages && sequence < q.sequences
}

// place is the offset of a position's page in k and v; the table reaches the
// position. ok is false if they do not have the page.
func (q *cached) place(position, sequence uint64) (at uint64, ok bool) {
	number := uint64(atomic.LoadUint32(&q.table[sequence*q.pages+position>>q.shift]))
	return number * q.page * q.width, number < q.held
}
