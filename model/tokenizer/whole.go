package tokenizer

// matcher finds pieces in a text: at the first place with a piece, the longest.
type matcher struct {
	begins [256]bool // bytes that a piece begins with
	next   map[edge]int32
	ids    []int32 // by node: the piece that ends there, -1 for none
}

// edge leads from a node of the tree to the next.
type edge struct {
	node int32
	b    byte
}

// add adds a piece. It returns the piece with the same text, if there is one.
func (m *matcher) add(text string, id int32) (other int32, ok bool) {
	if m.next == nil {
		m.next, m.ids = map[edge]int32{}, []int32{-1}
	}

	m.begins[text[0]] = true
	node := int32(0)
	for i := range len(text) {
		e := edge{node, text[i]}
		to, ok := m.next[e]
		if !ok {
			to = int32(len(m.ids))
			m.ids = append(m.ids, -1)
			m.next[e] = to
		}
		node = to
	}

	if m.ids[node] >= 0 {
		return m.ids[node], false
	}

	m.ids[node] = id
	return id, true
}

// find returns the first match at or after from that allow accepts: text[start:end]
// is piece id. allow may be nil.
func (m *matcher) find(text string, from int, allow func(id int32, start, end int) bool) (start, end int, id int32, ok bool) {
	if m.next == nil {
		return 0, 0, 0, false
	}

	for start = from; start < len(text); start++ {
		if !m.begins[text[start]] {
			continue
		}
		node, best := int32(0), int32(-1)
		for i := start; i < len(text); i++ {
			if node, ok = m.next[edge{node, text[i]}]; !ok {
				break
			}
			if got := m.ids[node]; got >= 0 && (allow == nil || allow(got, start, i+1)) {
				best, end = got, i+1
			}
		}
		if best >= 0 {
			return start, end, best, true
		}
	}

	return 0, 0, 0, false
}
