package tokenizer

// merger merges symbols of one text, the best pair first, the leftmost of equals. It
// keeps its memory from one text to the next.
//
// A symbol that was merged into its left neighbour has length 0. A heap entry is
// stale, and skipped, if the length of its two symbols has changed.
type merger struct {
	symbols []symbol
	heap    []pair
}

// symbol is text[start:start+size]. prev and next are symbols, -1 at the ends.
type symbol struct {
	start, size int32
	prev, next  int32
	id          int32 // the piece, -1 for none
	frozen      bool  // merges with nothing
}

// pair is two neighbours that could be one. key orders by rank, then by place.
type pair struct {
	key         uint64
	left, right int32
	size, id    int32
}

// begin starts a new text.
func (m *merger) begin() {
	m.symbols, m.heap = m.symbols[:0], m.heap[:0]
}

// push appends the next symbol of the text.
func (m *merger) push(start, size int, id int32) {
	n := int32(len(m.symbols))
	if n > 0 {
		m.symbols[n-1].next = n
	}
	m.symbols = append(m.symbols, symbol{start: int32(start), size: int32(size), prev: n - 1, next: -1, id: id})
}

// run merges everything that find allows. find returns the result of two
// neighbours.
func (m *merger) run(find func(a, b *symbol) (rank uint32, id int32, ok bool)) {
	offer := func(left, right int32) {
		if left < 0 || right < 0 {
			return
		}
		a, b := &m.symbols[left], &m.symbols[right]
		if rank, id, ok := find(a, b); ok {
			m.up(pair{uint64(rank)<<32 | uint64(left), left, right, a.size + b.size, id})
		}
	}

	for i := 1; i < len(m.symbols); i++ {
		offer(int32(i-1), int32(i))
	}

	for len(m.heap) > 0 {
		p := m.down()
		a, b := &m.symbols[p.left], &m.symbols[p.right]
		if a.size == 0 || b.size == 0 || a.size+b.size != p.size || a.next != p.right {
			continue
		}
		a.size, a.id, a.next = p.size, p.id, b.next
		b.size = 0
		if a.next >= 0 {
			m.symbols[a.next].prev = p.left
		}
		offer(a.prev, p.left)
		offer(p.left, a.next)
	}
}

// each calls yield for the remaining symbols, in order.
func (m *merger) each(yield func(s *symbol)) {
	if len(m.symbols) == 0 {
		return
	}
	for i := int32(0); i >= 0; i = m.symbols[i].next {
		yield(&m.symbols[i])
	}
}

// up puts a pair into the heap.
func (m *merger) up(p pair) {
	m.heap = append(m.heap, p)
	i := len(m.heap) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if m.heap[parent].key <= p.key {
			break
		}
		m.heap[i] = m.heap[parent]
		i = parent
	}
	m.heap[i] = p
}

// down takes the best pair out.
func (m *merger) down() pair {
	best := m.heap[0]
	n := len(m.heap) - 1
	p := m.heap[n]
	m.heap = m.heap[:n]
	i := 0
	for {
		child := 2*i + 1
		if child >= n {
			break
		}
		if child+1 < n && m.heap[child+1].key < m.heap[child].key {
			child++
		}
		if p.key <= m.heap[child].key {
			break
		}
		m.heap[i] = m.heap[child]
		i = child
	}

	if n > 0 {
		m.heap[i] = p
	}

	return best
}
