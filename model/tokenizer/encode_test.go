package tokenizer

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestSentenceAgainstSlow: the heap finds the same merges as a search of all pairs,
// for random vocabularies with equal scores.
func TestSentenceAgainstSlow(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		letters := rapid.SampledFrom([]string{"a", "b", "▁", "é", "世"})
		seen := map[string]bool{}
		var vocab []Piece
		for range rapid.IntRange(0, 14).Draw(rt, "pieces") {
			text := strings.Join(rapid.SliceOfN(letters, 1, 4).Draw(rt, "piece"), "")
			if !seen[text] {
				seen[text] = true
				vocab = append(vocab, normal(text, float32(rapid.IntRange(-4, 0).Draw(rt, "score"))))
			}
		}

		s := sentenceSpec(vocab...)
		s.SpacePrefix = rapid.Bool().Draw(rt, "prefix")
		tok := mustNew(t, s)
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", " ", "é", "世", "\xff"}), 0, 16).Draw(rt, "text"), "")
		got := tok.Encode(text, Encode{NoBOS: true})
		require.Equal(rt, slowSentence(&tok.spec, text), got)
		require.Equal(rt, strings.ToValidUTF8(text, "\uFFFD"), strings.ToValidUTF8(joined(tok, got, s.SpacePrefix), "\uFFFD"))
	})
}

// joined is the bytes of tokens, without the space that was put before them.
func joined(t *Tokenizer, ids []int32, prefix bool) string {
	var b strings.Builder
	for _, id := range ids {
		b.Write(t.Piece(id))
	}
	if prefix && len(ids) > 0 {
		return b.String()[1:]
	}
	return b.String()
}

// TestWordAgainstSlow: the same for merges by rank.
func TestWordAgainstSlow(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		have := []string{"a", "b", "c"}
		var merges []string
		seen := map[string]bool{}
		for range rapid.IntRange(0, 12).Draw(rt, "merges") {
			a, b := rapid.SampledFrom(have).Draw(rt, "a"), rapid.SampledFrom(have).Draw(rt, "b")
			if !seen[a+b] {
				seen[a+b] = true
				have, merges = append(have, a+b), append(merges, a+" "+b)
			}
		}
		s := byteSpec(merges...)
		s.Splits = []string{}
		tok := mustNew(t, s)
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d", "\xff"}), 0, 16).Draw(rt, "text"), "")
		require.Equal(rt, slowWord(&tok.spec, text), tok.Encode(text, Encode{}))
	})
}

func TestByteLevel(t *testing.T) {
	s := byteSpec("h e", "l l", "he ll", "Ġ hell", "ð Ł")
	tok := mustNew(t, s)
	require.Equal(t, []string{"hell", "o", "Ġhell", "ðŁ", "Ļ", "Ĥ"}, pieces(tok, tok.Encode("hello hell🙂", Encode{})))
	require.Equal(t, "hello hell🙂", decodeAll(tok, tok.Encode("hello hell🙂", Encode{})))

	s.IgnoreMerges = true
	s.Pieces = append(s.Pieces, normal("Ġho", 0), Piece{Text: []byte("Ġhu"), Kind: Control})
	tok = mustNew(t, s)
	require.Equal(t, []string{"Ġho", "Ġ", "h", "u"}, pieces(tok, tok.Encode(" ho hu", Encode{})), "a word that is a piece, unless it is Control")

	s.SpacePrefix = true
	tok = mustNew(t, s)
	require.Equal(t, []string{"Ġho", "Ċ"}, pieces(tok, tok.Encode("ho\n", Encode{})))
	require.Equal(t, []string{"Ġho"}, pieces(tok, tok.Encode(" ho", Encode{})))
	require.Equal(t, "ho\n", decodeAll(tok, tok.Encode("ho\n", Encode{})))
}

// TestNFC: text is composed before anything else, if the vocabulary says so.
func TestNFC(t *testing.T) {
	s := byteSpec("Ã ©")
	require.Equal(t, []string{"e", "Ì", "ģ"}, pieces(mustNew(t, s), mustNew(t, s).Encode("e\u0301", Encode{})))
	s.NFC = true
	require.Equal(t, []string{"Ã©"}, pieces(mustNew(t, s), mustNew(t, s).Encode("e\u0301", Encode{})))
}

// TestControl: text makes a control token only with Special, and merging never
// does.
func TestControl(t *testing.T) {
	s := byteSpec("< |", "<| e", "n d", "nd |", "nd| >", "<|e nd|>")
	s.Pieces = s.Pieces[:len(s.Pieces)-1]
	s.Pieces[len(s.Pieces)-1].Kind = Control
	tok := mustNew(t, s)
	end := tok.ID("<|end|>")
	require.True(t, tok.IsEnd(end))
	require.NotContains(t, tok.Encode("a<|end|>b", Encode{}), end)
	require.Equal(t, []string{"a", "<|end|>", "b"}, pieces(tok, tok.Encode("a<|end|>b", Encode{Special: true})))
	require.Equal(t, "ab", decodeAll(tok, tok.Encode("a<|end|>b", Encode{Special: true})), "no text of its own")
	require.Equal(t, "a<|end|>b", decodeAll(tok, tok.Encode("a<|end|>b", Encode{})))

	sp := sentenceSpec(normal("<s", 0), normal("<", 0), normal("s", 0), normal(">", 0), normal("s>", 0), normal("</s>", 0))
	sp.Pieces[2].Text = []byte("<end>")
	tok = mustNew(t, sp)
	require.Equal(t, []string{"<s>", "<0x20>", "<s", ">"}, pieces(tok, tok.Encode("<s>", Encode{})))
	require.Equal(t, []string{"<s>", "<s>"}, pieces(tok, tok.Encode("<s>", Encode{Special: true})))
}

// TestParts: pieces reach over the border of parts, control tokens do not.
func TestParts(t *testing.T) {
	s := byteSpec("a b")
	s.Pieces = append(s.Pieces, user("<tool>"))
	tok := mustNew(t, s)
	frame, data := func(x string) Part { return Part{x, true} }, func(x string) Part { return Part{Text: x} }
	encode := func(o Encode, parts ...Part) []string { return pieces(tok, tok.EncodeParts(o, parts...)) }
	require.Equal(t, []string{"ab"}, encode(Encode{}, frame("a"), data("b")))
	require.Equal(t, []string{"<|end|>", "ab", "<|end|>"}, encode(Encode{}, frame("<|end|>a"), data("b"), frame("<|end|>")))
	for _, parts := range [][]Part{
		{data("<|end|>")}, {frame("<|e"), data("nd|>")}, {data("<|e"), frame("nd|>")}, {frame("<|e"), data(""), frame("nd|>")},
		{frame("x"), data("<|end|>"), frame("y")},
	} {
		require.NotContains(t, encode(Encode{}, parts...), "<|end|>", "%v", parts)
	}

	tool := tok.ID("<tool>")
	require.Equal(t, []string{"<tool>", "<tool>"}, encode(Encode{}, data("<tool>"), frame("<tool>")))
	require.Len(t, encode(Encode{Reserved: []int32{tool}}, data("<tool>"), frame("<tool>")), len("<tool>")+1)
}

// TestWhole: of the pieces that begin at one place the longest is taken, with white
// space if the piece says so, and with the space before the following text.
func TestWhole(t *testing.T) {
	s := sentenceSpec(normal("▁", 0), normal("a", 0), user("<x>"), user("<x><y>"), user("<z"),
		Piece{Text: []byte("<l>"), Kind: Control, LStrip: true}, Piece{Text: []byte("<r>"), Kind: Control, RStrip: true}, user("▁▁▁"))

	encode := func(s Spec, text string) []string {
		tok := mustNew(t, s)
		return pieces(tok, tok.Encode(text, Encode{Special: true, NoBOS: true}))
	}

	require.Equal(t, []string{"<x>", "▁", "a", "<x><y>", "<x>", "<z"}, encode(s, "<x>a<x><y><x><z"))
	require.Equal(t, []string{"▁", "a", "<l>", "▁", "▁", "a"}, encode(s, "a \n <l> a"))
	require.Equal(t, []string{"▁", "a", "▁", "<r>", "▁", "a"}, encode(s, "a <r> \u2003a"))
	require.Equal(t, []string{"▁", "a", "▁▁▁", "▁", "a"}, encode(s, "a   a"), "U+2581 of a piece is a space of the text")
	s.SpaceFirst = true
	require.Equal(t, []string{"<x>", "a"}, encode(s, "<x>a"))
	require.Equal(t, []string{"▁", "a", "<x>", "a"}, encode(s, "a<x>a"))
	s.SpaceOnce = true
	require.Equal(t, []string{"▁", "a"}, encode(s, " a"))
	require.Equal(t, []string{"▁", "a"}, encode(s, "a"))
}

// TestNormalized: a piece that is matched in normalised text has a space before it
// there, as the text has.
func TestNormalized(t *testing.T) {
	p := user("<x>")
	p.Normalized = true
	s := sentenceSpec(normal("▁", 0), normal("a", 0), p)
	tok := mustNew(t, s)
	require.Equal(t, []string{"▁", "a", "<x>", "a"}, pieces(tok, tok.Encode("a <x>a", Encode{NoBOS: true})))
	require.NotContains(t, pieces(tok, tok.Encode("a<x>", Encode{NoBOS: true})), "<x>")
	id := []int32{tok.ID("<x>")}
	require.NotContains(t, tok.Encode("<x>", Encode{NoBOS: true, Reserved: id}), id[0])
	require.Contains(t, tok.Encode("<x>", Encode{NoBOS: true, Reserved: id, Special: true}), id[0])
}

// TestUnused: an unused piece is only a step to others, and otherwise falls back to
// its parts (SentencePiece, bpe_model.cc, Encode).
func TestUnused(t *testing.T) {
	un := func(text string, score float32) Piece { return Piece{Text: []byte(text), Score: score, Kind: Unused} }
	s := sentenceSpec(normal("a", -9), normal("b", -9), normal("c", -9), un("ab", -1), un("abc", -2), normal("abcc", -3))
	s.SpacePrefix, s.AddBOS = false, false
	tok := mustNew(t, s)
	require.Equal(t, []string{"abcc"}, pieces(tok, tok.Encode("abcc", Encode{})))
	require.Equal(t, []string{"a", "b", "c", "b"}, pieces(tok, tok.Encode("abcb", Encode{})))
}

// TestUnknown: a run of text without a piece and without bytes becomes one unknown
// token.
func TestUnknown(t *testing.T) {
	s := Spec{Scheme: SentencePiece, BOS: -1, EOS: -1, EOT: -1, Unk: 0, Pieces: []Piece{{Kind: Unknown}, normal("a", 0)}}
	tok := mustNew(t, s)
	require.Equal(t, []int32{1, 0, 1, 0}, tok.Encode("a\u4e16xyza!", Encode{}))
	require.Equal(t, "a \u2047 ", decodeAll(tok, []int32{1, 0}))
	s.Unk = -1
	require.Equal(t, []int32{1, 1}, mustNew(t, s).Encode("axyza!", Encode{}))
}

func TestEnds(t *testing.T) {
	s := sentenceSpec(normal("end", 0), user("<|im_end|>"), normal("<|end|>", 0))
	s.Ends, s.EOT, s.AddEOS = []int{3}, 259, true
	tok := mustNew(t, s)
	for id := range int32(tok.Vocab()) {
		p := string(tok.spec.Pieces[id].Text)
		require.Equal(t, id == 2 || id == 3 || p == "end" || p == "<|im_end|>", tok.IsEnd(id), p)
	}
	require.NotContains(t, tok.Encode("end", Encode{}), int32(259), "what ends a text is Control")
	require.Equal(t, []int32{1, 2}, tok.Encode("", Encode{}))
	require.Empty(t, tok.Encode("", Encode{NoBOS: true}))
	require.False(t, tok.IsEnd(-1))
	require.Nil(t, tok.Piece(-1))
	require.Nil(t, tok.Piece(int32(tok.Vocab())))
	require.EqualValues(t, -1, tok.ID("nothing"))
}

// TestLong: texts for which a quadratic algorithm would not finish.
func TestLong(t *testing.T) {
	var merges []string
	run := "a"
	for len(run) < 256 {
		merges = append(merges, run+" "+run)
		run += run
	}

	s := byteSpec(merges...)
	s.Splits = []string{}
	var vocab []Piece
	for n := range 300 {
		vocab = append(vocab, normal(strings.Repeat("a", n+1), float32(n)))
	}

	for _, tok := range []*Tokenizer{mustNew(t, s), mustNew(t, sentenceSpec(vocab...))} {
		for _, text := range []string{strings.Repeat("a", 1<<18), strings.Repeat("ab", 1<<17), strings.Repeat("<|end|", 1<<15)} {
			if decodeAll(tok, tok.Encode(text, Encode{Special: true})) != text {
				t.Errorf("%.10s… does not come back", text)
			}
		}
	}
}

// TestTogether: one Tokenizer serves many goroutines.
func TestTogether(t *testing.T) {
	for name, g := range readGolden(t) {
		tok, _, err := FromJSON(g.Tokenizer, nil)
		require.NoError(t, err)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for _, c := range g.Cases {
					ids := tok.Encode(c.text, Encode{Special: true})
					if !slices.Equal(ids, c.ids) {
						t.Errorf("%s: %q", name, c.text)
					}
					decodeAll(tok, ids)
				}
			})
		}
		all.Wait()
	}
}
