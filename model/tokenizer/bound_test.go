package tokenizer

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

// boundTokenizers are vocabularies of all kinds.
func boundTokenizers(t testing.TB) map[string]*Tokenizer {
	nfc := byteSpec("a b", "ab c")
	nfc.NFC = true
	added := sentenceSpec(normal("▁", 0), normal("a", 0), normal("▁a", 1), normal("aa", 2))
	added.Pieces = append(added.Pieces, user("a long piece"))
	strip := sentenceSpec(normal("a", 0))
	strip.Pieces = append(strip.Pieces, Piece{Text: []byte("|"), Kind: User, RStrip: true})
	holes := sentenceSpec(normal("▁", 0), normal("a", 0))
	holes.Pieces = append(holes.Pieces[:3], holes.Pieces[3+128:]...)
	silent := byteSpec("a b")
	silent.Pieces = append(silent.Pieces[:'b'+1], silent.Pieces['b'+2:]...)
	over := sentenceSpec(normal("▁", 0), normal("a", 0), normal("a▁", 3), normal("a▁a", 1), normal("▁a", 2))
	return map[string]*Tokenizer{
		"bytes": mustNew(t, sentenceSpec()), "words": mustNew(t, added), "over": mustNew(t, over),
		"strip": mustNew(t, strip), "holes": mustNew(t, holes), "silent": mustNew(t, silent),
		"byte level": mustNew(t, byteSpec("a a", "aa a", "aaa aaa")), "composed": mustNew(t, nfc),
	}
}

func TestMaxPieceBytes(t *testing.T) {
	for name, tok := range boundTokenizers(t) {
		want := map[string]int{ // the others have none
			"bytes": len("▁</s>"), "over": len("▁</s>"), "words": len("▁a▁long▁piece"), "byte level": len("<|end|>"), "composed": 9 * len("<|end|>"),
		}[name]
		require.Equal(t, want, tok.MaxPieceBytes(), name)
	}
}

// No character breaks the assumption of setBounds about composing.
func TestComposingGrowth(t *testing.T) {
	for r := range utf8.MaxRune + 1 {
		if !utf8.ValidRune(r) {
			continue
		}
		text := string(r)
		apart := norm.NFD.String(text)
		require.LessOrEqual(t, len(text), 3*len(apart), "%U", r)
		require.LessOrEqual(t, len(apart), 3*len(text), "%U", r)
	}
}

// A text that CanFit refuses has more tokens, and EncodeMost equals Encode up to
// the bound, for any text and vocabulary.
func TestEncodeMost(t *testing.T) {
	all := boundTokenizers(t)
	rapid.Check(t, func(t *rapid.T) {
		tok := all[rapid.SampledFrom([]string{"bytes", "words", "over", "strip", "holes", "silent", "byte level", "composed"}).Draw(t, "tokenizer")]
		parts := rapid.SampledFrom([]string{"a", "aaaaaa", " ", "   ", "▁", "b", "abc", "é", "e\u0301", "\u1fef", "世", "\xff", "a long piece", "|   ", "<|end|>", "</s>"})
		text := strings.Join(rapid.SliceOfN(parts, 0, 30).Draw(t, "text"), "")
		o := Encode{Special: rapid.Bool().Draw(t, "special")}
		want := tok.Encode(text, o)
		require.True(t, tok.CanFit(len(text), len(want)))
		for most := range len(want) + 3 {
			got, ok := tok.EncodeMost(most, o, Part{text, o.Special})
			require.Equal(t, len(want) <= most, ok)
			if ok {
				require.Equal(t, want, got)
			} else {
				require.Nil(t, got)
			}
		}
	})
}

// A cut of a long text between words changes no token; a vocabulary with pieces
// over that place prevents the cut.
func TestLongRuns(t *testing.T) {
	for name, tok := range boundTokenizers(t) {
		text := strings.Repeat("aa a b\u4e16  aaa é", softRun/6)
		whole := *tok
		whole.apart = false
		require.Equal(t, name != "over", tok.apart)
		require.Equal(t, whole.Encode(text, Encode{}), tok.Encode(text, Encode{}), name)
	}
	e := encoder{t: mustNew(t, sentenceSpec(normal("▁a", 0)))}
	require.Equal(t, softRun+1, e.nextRun(strings.Repeat("a", softRun+1)+space+"b"))
	require.Equal(t, softRun+6, e.nextRun(strings.Repeat("a", softRun-1)+space+space+"b"), "all of what has no such place")
}

// A text with too many tokens costs in proportion to the bound, not to the text.
func TestEncodeMostIsCheap(t *testing.T) {
	for name, text := range map[string]string{"refused by length": strings.Repeat("a", 4<<20), "stopped": strings.Repeat("a b", 1<<18)} {
		tok := mustNew(t, sentenceSpec(normal("▁a", 0), normal(strings.Repeat("c", 3000), 0)))
		if name == "stopped" {
			tok = mustNew(t, byteSpec("a a"))
			tok.longest, tok.merged = 0, 0 // as in a vocabulary without a bound
		}
		allocated := testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				_, ok := tok.EncodeMost(1000, Encode{}, Part{Text: text})
				require.False(b, ok)
			}
		}).AllocedBytesPerOp()
		require.Less(t, allocated, int64(len(text)/2), name)
	}
}
