package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// slowMerge is the obvious algorithm: search all neighbours, merge the best pair,
// repeat.
func slowMerge(symbols []string, rank func(a, b string) (float64, bool)) []string {
	for {
		best, at := 0.0, -1
		for i := 1; i < len(symbols); i++ {
			if r, ok := rank(symbols[i-1], symbols[i]); ok && (at < 0 || r < best) {
				best, at = r, i-1
			}
		}
		if at < 0 {
			return symbols
		}
		symbols[at] += symbols[at+1]
		symbols = append(symbols[:at+1], symbols[at+2:]...)
	}
}

// slowSentence returns the tokens of a SentencePiece text without whole pieces.
func slowSentence(s *Spec, text string) (out []int32) {
	if text == "" {
		return nil
	}
	if s.SpacePrefix {
		text = " " + text
	}

	text = strings.ReplaceAll(text, " ", space)
	find := func(text string) (int32, bool) {
		for i, p := range s.Pieces {
			if p.Kind == Normal && string(p.Text) == text {
				return int32(i), true
			}
		}
		return -1, false
	}

	var symbols []string
	for text != "" {
		_, n := utf8.DecodeRuneInString(text)
		symbols, text = append(symbols, text[:n]), text[n:]
	}

	symbols = slowMerge(symbols, func(a, b string) (float64, bool) {
		id, ok := find(a + b)
		if !ok {
			return 0, false
		}
		return -float64(s.Pieces[id].Score), true
	})

	for _, sym := range symbols {
		if id, ok := find(sym); ok {
			out = append(out, id)
			continue
		}
		if sym == space {
			sym = " "
		}
		for _, b := range []byte(sym) {
			for i, p := range s.Pieces {
				if v, ok := byteOf(p.Text); ok && p.Kind == Byte && v == b {
					out = append(out, int32(i))
				}
			}
		}
	}

	return out
}

// slowWord returns the tokens of a ByteLevel word.
func slowWord(s *Spec, word string) (out []int32) {
	var symbols []string
	for _, b := range []byte(word) {
		symbols = append(symbols, string(printable[b]))
	}

	symbols = slowMerge(symbols, func(a, b string) (float64, bool) {
		for i, m := range s.Merges {
			if m == a+" "+b {
				return float64(i), true
			}
		}
		return 0, false
	})

	for _, sym := range symbols {
		for i, p := range s.Pieces {
			if p.Kind == Normal && string(p.Text) == sym {
				out = append(out, int32(i))
			}
		}
	}

	return out
}
