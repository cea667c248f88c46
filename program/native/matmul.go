package native

// Matrix product: c[m][n] = a[m][k] · b[k][n]. c is computed in panels as wide as a
// tile, each panel in blocks of rows. An item is a block of a panel, and items
// follow each other down a panel, so that a range of them shares the panel of b.
//
// Each element of c is one chain of fused additions in the order of k, however the
// product is cut into tiles and ranges.

const (
	mostTileRows = 12
	mostTileCols = 32
	panelDepth   = 256 // rows of b that are packed at a time: a panel of them fits the L1 cache

	deepest    = 1 << 17          // beyond this k, an item takes too long
	packRows   = 2 * mostTileRows // the least rows for which packing b pays
	grainFlops = 8 << 20
	grainPages = mostPages / 4 // of a range of more than one item

	mostFlopsGo = 2 << 20 // see mostFlops: without assembly
)

// blockRows are the possible numbers of rows of a block. The largest is taken with
// which an item has no more than mostFlops.
var blockRows = [...]int{8 * mostTileRows, mostTileRows, 4, 1}

var matmulShape = shape{bindings: 3, inlineWords: 3, write: 2, write2: -1}

// product is a call's arguments.
type product struct {
	a, b, c    []float32
	m, n, k    int
	rows, cols int // of a block
	blocks     int // of a panel
	panels     int
	pages      uint64 // that an item touches, at the most
}

func productOf(c *Call) (p product, ok bool) {
	m, n, k := c.inline(0), c.inline(1), c.inline(2)
	if k == 0 || k > deepest || m*k > c.words(0) || k*n > c.words(1) || m*n > c.words(2) {
		return p, false
	}

	p = product{a: c.f32(0), b: c.f32(1), c: c.f32(2), m: int(m), n: int(n), k: int(k)}
	p.cols = tileCols()
	for _, p.rows = range blockRows {
		if p.flops() <= mostFlops() {
			break
		}
	}

	p.blocks = int(ceilDiv(m, uint64(p.rows)))
	p.panels = int(ceilDiv(n, uint64(p.cols)))
	rows, cols := min(m, uint64(p.rows)), min(n, uint64(p.cols))
	if rows == 0 || cols == 0 {
		return p, true
	}

	p.pages = pagesOf(rows*k) + pages(c.Bindings[1], k, cols, n) + pages(c.Bindings[2], rows, cols, n)
	return p, p.pages <= mostPages
}

// flops is the number of operations of an item.
func (p *product) flops() uint64 { return uint64(2 * p.rows * p.cols * p.k) }

var matmulBody = &Body{
	Items: func(c *Call) (uint64, bool) {
		if !matmulShape.fits(c) {
			return 0, false
		}
		p, ok := productOf(c)
		return uint64(p.blocks) * uint64(p.panels), ok
	},
	Run: func(c *Call, lo, hi uint64) bool {
		p, ok := productOf(c)
		if !ok {
			return false
		}
		s := scratches.Get().(*scratch)
		for lo < hi {
			panel, block := int(lo)/p.blocks, int(lo)%p.blocks
			end := min(block+int(hi-lo), p.blocks)
			p.panel(s, panel*p.cols, block*p.rows, min(end*p.rows, p.m))
			lo += uint64(end - block)
		}
		scratches.Put(s)
		return true
	},
	Grain: func(c *Call) uint64 {
		p, ok := productOf(c)
		if !ok {
			return 1
		}
		items := min(grainFlops, mostFlops()) / p.flops()
		return max(1, min(items, grainPages/max(1, p.pages)))
	},
}

// panel does rows from to to-1 of the panel that begins at column col.
func (p *product) panel(s *scratch, col, from, to int) {
	cols := min(p.cols, p.n-col)
	whole := cols == p.cols
	for k := 0; k < p.k; k += panelDepth {
		depth := min(panelDepth, p.k-k)
		b, pitch := p.b[k*p.n+col:], p.n
		if !whole || to-from >= packRows {
			p.pack(s, b, depth, cols)
			b, pitch = s.panel[:], p.cols
		}
		add := min(k, 1)
		for row := from; row < to; {
			a, c := p.a[row*p.k+k:], p.c[row*p.n+col:]
			if whole {
				row += tile(to-row, depth, a, p.k, b, pitch, c, p.n, add)
			} else {
				row += p.edge(s, to-row, depth, a, b, c, cols, add)
			}
		}
	}
}

// pack copies rows of a panel one after the other; a panel that is cut off at the
// right is padded with zeros.
func (p *product) pack(s *scratch, b []float32, depth, cols int) {
	for i := range depth {
		row := s.panel[i*p.cols:][:p.cols]
		copy(row, b[i*p.n:][:cols])
		clear(row[cols:])
	}
}

// edge does a tile of which only cols columns exist.
func (p *product) edge(s *scratch, rows, depth int, a, b, c []float32, cols, add int) int {
	if add != 0 {
		for r := range min(rows, mostTileRows) {
			copy(s.edge[r*p.cols:][:cols], c[r*p.n:][:cols])
		}
	}
	done := tile(rows, depth, a, p.k, b, p.cols, s.edge[:], p.cols, add)
	for r := range done {
		copy(c[r*p.n:][:cols], s.edge[r*p.cols:][:cols])
	}
	return done
}
