package tokenizer

import (
	"math"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// maxRun is the largest length of text merged at once; longer text is cut. Places
// in it have 32 bits.
const maxRun = 1 << 28

// Encode are the options of encoding.
type Encode struct {
	// Special lets pieces of kind Control in the text become tokens. Never set it for
	// text from outside.
	Special bool
	// NoBOS adds neither a beginning nor an end.
	NoBOS bool
	// Reserved are pieces of kind User that are taken whole only with Special, like
	// those of kind Control: a chat template's frame, if a file calls it User.
	Reserved []int32
}

// Part is a part of a text, with its origin.
type Part struct {
	Text string
	// Special is as in Encode, for this part: a piece of kind Control is made only
	// from text that is wholly in one such part.
	Special bool
}

// Encode returns the tokens of a text, with the beginning that the vocabulary
// requires. Bytes that are no UTF-8 become the tokens of those bytes.
func (t *Tokenizer) Encode(text string, o Encode) []int32 {
	return t.EncodeParts(o, Part{text, o.Special})
}

// EncodeParts returns the tokens of the parts as one text: pieces may reach from
// one part into the next. o.Special is ignored.
func (t *Tokenizer) EncodeParts(o Encode, parts ...Part) []int32 {
	tokens, _ := t.EncodeMost(math.MaxInt, o, parts...)
	return tokens
}

// encoder is one call of Encode.
type encoder struct {
	t        *Tokenizer
	text     string
	special  [][2]int // stretches of text where Control may be found, in order
	reserved []int32
	out      []int32
	most     int  // of out
	over     bool // there are more
	unknown  bool // the last token of this section is Unk (SentencePiece)
	merger   merger
	reverse  map[string]int32 // for intermediate pieces of merging: their origin
}

// join makes one text of the parts.
func (e *encoder) join(parts []Part) {
	if len(parts) == 1 {
		e.text = parts[0].Text
	} else {
		var b strings.Builder
		for _, p := range parts {
			b.WriteString(p.Text)
		}
		e.text = b.String()
	}

	at := 0
	for _, p := range parts {
		if p.Special && p.Text != "" {
			e.special = append(e.special, [2]int{at, at + len(p.Text)})
		}
		at += len(p.Text)
	}
}

// run cuts the text at the whole pieces.
func (e *encoder) run() {
	stretch := 0
	allow := func(id int32, start, end int) bool {
		if !e.held(id) {
			return true
		}
		for stretch < len(e.special) && e.special[stretch][1] <= start {
			stretch++
		}
		return stretch < len(e.special) && e.special[stretch][0] <= start && end <= e.special[stretch][1]
	}
	e.cut(&e.t.raw, e.text, allow, e.section)
}

// cut emits the pieces of a matcher, and calls yield for the text between them and
// its start.
func (e *encoder) cut(m *matcher, text string, allow func(id int32, start, end int) bool, yield func(text string, from int)) {
	for from := 0; ; {
		start, end, id, ok := m.find(text, from, allow)
		if !ok {
			yield(text[from:], from)
			return
		}

		before := text[from:start]
		if e.t.spec.Pieces[id].LStrip {
			before = strings.TrimRightFunc(before, unicode.IsSpace)
		}

		yield(before, from)
		if e.full(0) {
			return
		}

		e.out = append(e.out, id)
		if e.t.spec.Pieces[id].RStrip {
			end = len(text) - len(strings.TrimLeftFunc(text[end:], unicode.IsSpace))
		}

		from = end
	}
}

// held reports whether a piece is made only from special text.
func (e *encoder) held(id int32) bool {
	if e.t.spec.Pieces[id].Kind == Control {
		return true
	}
	for _, r := range e.reserved {
		if r == id {
			return true
		}
	}
	return false
}

// section encodes the text between whole pieces, which begins at from.
func (e *encoder) section(text string, from int) {
	if text == "" {
		return
	}
	size := len(text)
	text = e.t.normalise(text, from == 0)
	allow := func(id int32, _, _ int) bool { return !e.held(id) || e.whollySpecial(from, size) }
	e.cut(&e.t.later, text, allow, func(text string, _ int) { e.merge(text) })
}

// whollySpecial reports whether a section is in one special part. Normalised text
// has no places of its own in the text any more.
func (e *encoder) whollySpecial(from, size int) bool {
	for _, s := range e.special {
		if s[0] <= from && from < s[1] {
			return from+size <= s[1]
		}
	}
	return false
}

// normalises reports whether normalising can change a text.
func (t *Tokenizer) normalises() bool { return t.spec.NFC || t.spec.Scheme == SentencePiece }

// normalise returns text as merging sees it. first means that it begins the whole
// text.
func (t *Tokenizer) normalise(text string, first bool) string {
	if t.spec.NFC {
		text = norm.NFC.String(text)
	}
	if t.spec.Scheme != SentencePiece {
		return text
	}
	prefix := t.spec.SpacePrefix && (first || !t.spec.SpaceFirst) &&
		!(t.spec.SpaceOnce && (strings.HasPrefix(text, " ") || strings.HasPrefix(text, space)))
	text = strings.ReplaceAll(text, " ", space)
	if prefix {
		text = space + text
	}
	return text
}

// merge encodes normalised text.
func (e *encoder) merge(text string) {
	e.unknown = false
	for text != "" && !e.full(len(text)) {
		n := e.nextRun(text)
		e.mergeRun(text[:n])
		text = text[n:]
	}
}

func (e *encoder) mergeRun(text string) {
	if e.t.spec.Scheme == SentencePiece {
		e.sentence(text)
		return
	}
	if e.t.spec.SpacePrefix && !strings.HasPrefix(text, " ") {
		text = " " + text
	}
	e.t.split(text, func(word string) bool {
		if e.full(len(word)) {
			return false
		}
		e.word(word)
		return true
	})
}
