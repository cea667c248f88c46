package tokenizer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sentenceSpec is all bytes, special tokens, and pieces with scores.
func sentenceSpec(pieces ...Piece) Spec {
	s := Spec{Scheme: SentencePiece, BOS: 1, EOS: 2, EOT: -1, Unk: 0, AddBOS: true, SpacePrefix: true}
	s.Pieces = []Piece{{Text: []byte("<unk>"), Kind: Unknown}, {Text: []byte("<s>"), Kind: Control}, {Text: []byte("</s>"), Kind: Control}}
	for b := range 256 {
		s.Pieces = append(s.Pieces, Piece{Text: fmt.Appendf(nil, "<0x%02X>", b), Kind: Byte})
	}
	s.Pieces = append(s.Pieces, pieces...)
	return s
}

// byteSpec is all bytes, the results of merges, and <|end|>, which is Control.
func byteSpec(merges ...string) Spec {
	s := Spec{Scheme: ByteLevel, BOS: -1, EOS: -1, EOT: -1, Unk: -1, Merges: merges}
	for b := range 256 {
		s.Pieces = append(s.Pieces, Piece{Text: []byte(string(printable[b]))})
	}
	for _, m := range merges {
		a, b, _ := cutMerge(m)
		s.Pieces = append(s.Pieces, Piece{Text: []byte(a + b)})
	}
	s.Pieces = append(s.Pieces, Piece{Text: []byte("<|end|>"), Kind: Control})
	return s
}

func normal(text string, score float32) Piece { return Piece{Text: []byte(text), Score: score} }

func user(text string) Piece { return Piece{Text: []byte(text), Kind: User} }

func mustNew(t testing.TB, s Spec) *Tokenizer {
	t.Helper()
	tok, err := New(s)
	require.NoError(t, err)
	return tok
}

// pieces are tokens as the file writes them.
func pieces(t *Tokenizer, ids []int32) (out []string) {
	for _, id := range ids {
		out = append(out, string(t.spec.Pieces[id].Text))
	}
	return out
}

// decodeAll is the text of tokens, one after the other.
func decodeAll(t *Tokenizer, ids []int32) string {
	d, text := t.Decoder(), strings.Builder{}
	for _, id := range ids {
		text.WriteString(d.Add(id))
	}
	return text.String() + d.Flush()
}
