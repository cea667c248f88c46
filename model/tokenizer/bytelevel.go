package tokenizer

import "unicode/utf8"

// printable is ByteLevel's character for a byte: printable characters of Latin-1
// stand for themselves, the others are U+0100 and up, in order (GPT-2's encoder.py,
// bytes_to_unicode).
var printable = func() (p [256]rune) {
	next := rune(0x100)
	for b := range p {
		if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			p[b] = rune(b)
			continue
		}
		p[b] = next
		next++
	}
	return p
}()

// byteOfPrintable is its inverse.
var byteOfPrintable = func() map[rune]byte {
	m := make(map[rune]byte, 256)
	for b, r := range printable {
		m[r] = byte(b)
	}
	return m
}()

// fromPrintable returns the bytes that a text of printable characters stands for.
func fromPrintable(text []byte) ([]byte, bool) {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		b, ok := byteOfPrintable[r]
		if !ok || r == utf8.RuneError {
			return nil, false
		}
		out = append(out, b)
		text = text[size:]
	}
	return out, true
}

// word merges the bytes of a word of ByteLevel.
func (e *encoder) word(text string) {
	t, m := e.t, &e.merger
	if t.spec.IgnoreMerges || len(text) == 1 {
		if id, ok := t.normal[text]; ok {
			e.out = append(e.out, id)
			return
		}
	}
	m.begin()
	for i := range len(text) {
		m.push(i, 1, t.bytes[text[i]])
	}
	m.run(t.pair)
	unknown := false
	m.each(func(s *symbol) { unknown = e.emit(s.id, unknown) })
}
