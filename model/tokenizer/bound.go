package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// nfcGrowth bounds how many times shorter composing can make a text. A character of
// three bytes can be canonically one of one byte, and a composed character replaces
// up to three times its length.
const nfcGrowth = 9

// softRun is the length of SentencePiece text merged at once, if it may be cut; a
// run ends at the next possible cut.
const softRun = 1 << 16

// setBounds computes how much text one token can stand for.
func (t *Tokenizer) setBounds() error {
	t.apart = true
	for text := range t.normal {
		t.merged = max(t.merged, len(text))
		t.apart = t.apart && !joins(text)
	}

	if t.spec.Scheme == SentencePiece {
		t.merged = max(t.merged, len(space)) // the token of a space's byte may stand for it
	}

	for _, id := range t.bytes {
		if id < 0 { // a long text without a token is one token, or none
			t.merged = 0
			return nil
		}
	}

	t.longest = t.merged
	for i, p := range t.spec.Pieces {
		if p.Kind != Control && p.Kind != User || len(p.Text) == 0 {
			continue
		}
		if p.LStrip || p.RStrip {
			t.longest = 0
			return nil
		}
		t.longest = max(t.longest, len(p.Text), len(t.text[i]), len(t.normalise(string(p.Text), true)))
	}

	if t.spec.NFC {
		t.longest *= nfcGrowth
	}

	return nil
}

// joins reports whether a piece has the beginning of a word behind other text.
func joins(text string) bool {
	inside := strings.TrimLeft(text, space)
	return strings.Contains(inside, space)
}

// MaxPieceBytes is the longest text of one token, in bytes. It is 0 if there is no
// bound, because white space goes with a piece or all unknown text is one token.
func (t *Tokenizer) MaxPieceBytes() int { return t.longest }

// CanFit reports whether a text of this size could be at most this many tokens.
func (t *Tokenizer) CanFit(size, tokens int) bool {
	return t.longest == 0 || size/t.longest <= tokens
}

// EncodeMost is EncodeParts with a bound on the tokens. If a text has more, ok is
// false, and EncodeMost stops as soon as it knows.
func (t *Tokenizer) EncodeMost(most int, o Encode, parts ...Part) (tokens []int32, ok bool) {
	size := 0
	for _, p := range parts {
		size += len(p.Text)
	}

	if !t.CanFit(size, most) {
		return nil, false
	}

	e := encoder{t: t, reserved: o.Reserved, most: most}
	e.join(parts)
	if !o.NoBOS && t.spec.AddBOS && t.spec.BOS >= 0 {
		e.out = append(e.out, int32(t.spec.BOS))
	}

	e.run()
	if !o.NoBOS && t.spec.AddEOS && t.spec.EOS >= 0 {
		e.out = append(e.out, int32(t.spec.EOS))
	}
	if e.over || len(e.out) > most {
		return nil, false
	}

	return e.out, true
}

// full reports whether the tokens so far, and those of size more bytes of
// normalised text, are too many.
func (e *encoder) full(size int) bool {
	if left := e.most - len(e.out); left < 0 || e.t.merged > 0 && size/e.t.merged > left {
		e.over = true
	}
	return e.over
}

// nextRun is the length of the text that is merged at once. If the rest begins a
// word, and no piece reaches over that boundary, the cut changes no token. A run of
// maxRun ends anywhere.
func (e *encoder) nextRun(text string) int {
	if e.t.spec.Scheme == SentencePiece && e.t.apart && len(text) > softRun {
		for at := softRun; at < min(len(text), maxRun); at++ {
			if strings.HasPrefix(text[at:], space) && !strings.HasSuffix(text[:at], space) {
				return at
			}
		}
	}
	if len(text) <= maxRun {
		return len(text)
	}
	cut := maxRun
	for cut > maxRun-utf8.UTFMax && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return cut
}
