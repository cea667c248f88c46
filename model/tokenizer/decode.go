package tokenizer

import "unicode/utf8"

// Decoder turns tokens into text one by one. It returns only whole characters.
// Bytes that can no longer become one are U+FFFD each.
type Decoder struct {
	t     *Tokenizer
	begun bool // there was text
	held  []byte
}

// Decoder decodes the text after the tokens of a prompt. Without a prompt, or with
// one of only special tokens, it drops the space that SpacePrefix put before the
// text.
func (t *Tokenizer) Decoder(prompt ...int32) *Decoder {
	d := &Decoder{t: t}
	for _, id := range prompt {
		d.add(id)
		d.held = d.held[d.whole():]
	}
	return d
}

// Add returns the text that this token completes. For a number that is no token it
// returns nothing.
func (d *Decoder) Add(id int32) string {
	d.add(id)
	n := d.whole()
	text := valid(d.held[:n])
	d.held = append(d.held[:0], d.held[n:]...)
	return text
}

// Flush returns the rest: U+FFFD for each byte of an unfinished character.
func (d *Decoder) Flush() string {
	text := valid(d.held)
	d.held = d.held[:0]
	return text
}

// add appends the bytes of a token.
func (d *Decoder) add(id int32) {
	text := d.t.Piece(id)
	if len(text) == 0 {
		return
	}
	if !d.begun && d.t.spec.SpacePrefix && text[0] == ' ' && d.t.prefixes(id) {
		text = text[1:]
	}
	d.begun = true
	d.held = append(d.held, text...)
}

// whole is the number of held bytes that are final.
func (d *Decoder) whole() int {
	n := len(d.held)
	for back := 1; back < utf8.UTFMax && back <= n; back++ {
		if b := d.held[n-back]; utf8.RuneStart(b) {
			if !utf8.FullRune(d.held[n-back:]) {
				return n - back
			}
			break
		}
	}
	return n
}

// valid is the bytes with U+FFFD for each one that belongs to no character.
func valid(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return string([]rune(string(b)))
}

// prefixes reports whether a piece can contain the space of SpacePrefix: a piece
// that merging makes, or a byte if there is no piece for a space.
func (t *Tokenizer) prefixes(id int32) bool {
	_, spaces := t.normal[space]
	k := t.spec.Pieces[id].Kind
	return k == Normal || k == Byte && !spaces
}
