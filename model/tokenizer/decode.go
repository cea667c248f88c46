package tokenizer

import "unicode/utf8"

// Decoder makes text of tokens as they come. It hands out whole characters only; what
// can no longer become one is U+FFFD, one for each byte.
type Decoder struct {
	t     *Tokenizer
	begun bool // there was text
	held  []byte
}

// Decoder is for the text that follows the tokens of a prompt. Without a prompt, or with
// one of special tokens only, the space that SpacePrefix put before the text is not
// handed out.
func (t *Tokenizer) Decoder(prompt ...int32) *Decoder {
	d := &Decoder{t: t}
	for _, id := range prompt {
		d.add(id)
		d.held = d.held[d.whole():]
	}
	return d
}

// Add returns the text that is whole with this token. Of what is no token it returns
// nothing.
func (d *Decoder) Add(id int32) string {
	d.add(id)
	n := d.whole()
	text := valid(d.held[:n])
	d.held = append(d.held[:0], d.held[n:]...)
	return text
}

// Flush returns what is left: U+FFFD for each byte of the beginning of a character.
func (d *Decoder) Flush() string {
	text := valid(d.held)
	d.held = d.held[:0]
	return text
}

// add appends what a token adds.
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

// whole is how much of what is held cannot change any more.
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

// valid is the bytes with U+FFFD for each that is of no character.
func valid(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return string([]rune(string(b)))
}

// prefixes says whether SpacePrefix can be in a piece: in those that merging makes, or
// in the byte where they lack a space.
func (t *Tokenizer) prefixes(id int32) bool {
	_, spaces := t.normal[space]
	k := t.spec.Pieces[id].Kind
	return k == Normal || k == Byte && !spaces
}
