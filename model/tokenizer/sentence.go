package tokenizer

import "unicode/utf8"

// sentence merges the characters of a text of SentencePiece.
func (e *encoder) sentence(text string) {
	t, m := e.t, &e.merger
	m.begin()
	for at := 0; at < len(text); {
		_, size := utf8.DecodeRuneInString(text[at:])
		id, ok := t.normal[text[at:at+size]]
		switch {
		case ok:
			m.push(at, size, id)
		case t.pairs != nil:
			// Pairs consist of pieces, so a character without a piece becomes its
			// bytes at once.
			m.push(at, size, -1)
			m.symbols[len(m.symbols)-1].frozen = true
		default:
			m.push(at, size, -1)
		}
		at += size
	}

	clear(e.reverse)
	m.run(func(a, b *symbol) (uint32, int32, bool) {
		if t.pairs != nil {
			return t.pair(a, b)
		}

		whole := text[a.start : b.start+b.size]
		if len(whole) > MaxPiece {
			return 0, 0, false
		}

		id, ok := t.normal[whole]
		if !ok {
			return 0, 0, false
		}

		if t.spec.Pieces[id].Kind == Unused {
			if e.reverse == nil {
				e.reverse = map[string]int32{}
			}
			e.reverse[whole] = a.size
		}

		return t.rank[id], id, true
	})

	m.each(func(s *symbol) {
		e.unknown = e.resolve(text[s.start:s.start+s.size], s.id, e.unknown)
	})
}

// resolve emits a symbol: as its piece, as the parts of an unused piece, or as its
// bytes.
func (e *encoder) resolve(text string, id int32, unknown bool) bool {
	if id >= 0 && e.t.spec.Pieces[id].Kind != Unused {
		return e.emit(id, unknown)
	}

	// The parts are shorter each time. A loop over the left part, with a call for
	// the right, would be as deep. No piece is longer than MaxPiece.
	if left, ok := e.reverse[text]; ok {
		unknown = e.resolve(text[:left], e.lookup(text[:left]), unknown)
		return e.resolve(text[left:], e.lookup(text[left:]), unknown)
	}
	if text == space {
		text = " " // in a vocabulary without a piece for it
	}

	for i := range len(text) {
		unknown = e.emit(e.t.bytes[text[i]], unknown)
	}

	return unknown
}

func (e *encoder) lookup(text string) int32 {
	if id, ok := e.t.normal[text]; ok {
		return id
	}
	return -1
}

// emit appends a token. Without a token it appends Unk, once for adjacent ones.
func (e *encoder) emit(id int32, unknown bool) bool {
	if id >= 0 {
		e.out = append(e.out, id)
		return false
	}
	if !unknown && e.t.spec.Unk >= 0 {
		e.out = append(e.out, int32(e.t.spec.Unk))
	}
	return true
}

// pair returns the result of merging two neighbours by Merges.
func (t *Tokenizer) pair(a, b *symbol) (uint32, int32, bool) {
	if a.frozen || b.frozen || a.id < 0 || b.id < 0 {
		return 0, 0, false
	}
	p, ok := t.pairs[[2]int32{a.id, b.id}]
	return p.rank, p.id, ok
}
