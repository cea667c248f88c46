package tokenizer

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// words is a text cut by expressions; slow disables the short cuts.
func words(t testing.TB, exprs []string, text string, slow bool) []string {
	t.Helper()
	return cutter(t, exprs, slow)(t, text)
}

// cutter is words for many texts.
func cutter(t testing.TB, exprs []string, slow bool) func(t require.TestingT, text string) []string {
	t.Helper()
	tok := &Tokenizer{spec: Spec{Scheme: ByteLevel, Splits: exprs}}
	require.NoError(t, tok.setSplits())
	for _, s := range tok.splits {
		if slow {
			s.word = nil
		}
	}
	return func(t require.TestingT, text string) (out []string) {
		tok.split(text, func(w string) bool { out = append(out, w); return true })
		require.Equal(t, text, strings.Join(out, ""), "words are all of the text")
		return out
	}
}

// TestWords: the words that the models' own splits make of a text (by hand, from
// the expressions).
func TestWords(t *testing.T) {
	const text = "I'll go, DON'T  wait:\n\n  12345 x\t\ty² ünï 世界!\r\n "
	for name, want := range map[string][]string{
		"gpt-2":        {"I", "'ll", " go", ",", " DON", "'", "T", " ", " wait", ":", "\n\n ", " 12345", " x", "\t", "\t", "y", "²", " ünï", " 世界", "!", "\r\n "},
		"llama-bpe":    {"I", "'ll", " go", ",", " DON", "'T", " ", " wait", ":\n\n", " ", " ", "123", "45", " x", "\t", "\ty", "²", " ünï", " 世界", "!\r\n", " "},
		"qwen2":        {"I", "'ll", " go", ",", " DON", "'T", " ", " wait", ":\n\n", " ", " ", "1", "2", "3", "4", "5", " x", "\t", "\ty", "²", " ünï", " 世界", "!\r\n", " "},
		"smollm":       {"I", "'ll", " go", ",", " DON", "'", "T", " ", " wait", ":", "\n\n  ", "1", "2", "3", "4", "5", " x", "\t", "\t", "y", "²", " ünï", " 世界", "!", "\r\n "},
		"deepseek-llm": {"I", "'", "ll", " go", ",", " DON", "'", "T", " ", " wait", ":", "\n", "\n", "  ", "12345", " x", "\t", "\ty", "²", " ü", "n", "ï", " ", "世界", "!", "\r", "\n", " "},
		"deepseek-v3":  {"I", "'ll", " go", ",", " DON", "'T", " ", " wait", ":\n\n", "  ", "123", "45", " x", "\t", "\ty", "²", " ünï", " ", "世界", "!\r\n", " "},
	} {
		exprs, ok := namedSplits(name)
		require.True(t, ok)
		require.Equal(t, want, words(t, exprs, text, false), name)
		require.Equal(t, want, words(t, exprs, text, true), name)
	}
}

// anyText draws text of the characters that the expressions distinguish.
func anyText(t *rapid.T) string {
	parts := rapid.SampledFrom([]string{
		"'s", "'S", "'ſ", "'ll", "'lL", "'RE", "'v", "'", "a", "Zz", "é", "世", "1", "23", "²", "٣", " ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u2003", "\u0085",
		"!", "...", "🙂", "\u0301", "\xff", "\xe4\xb8", "_", "/", "ǅ",
	})
	return strings.Join(rapid.SliceOfN(parts, 0, 20).Draw(t, "text"), "")
}

// TestWordsByHand compares the functions with the expressions.
func TestWordsByHand(t *testing.T) {
	for _, expr := range []string{gpt2Split, llama3Split, qwen2Split} {
		slow, fast := cutter(t, []string{expr}, true), cutter(t, []string{expr}, false)
		rapid.Check(t, func(rt *rapid.T) {
			text := anyText(rt)
			require.Equal(rt, slow(rt, text), fast(rt, text), "%q", text)
		})
	}
}

// TestNamed: every name has expressions that work, and that lose nothing.
func TestNamed(t *testing.T) {
	for name, exprs := range named {
		cut := cutter(t, exprs, true)
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) { cut(rt, anyText(rt)) })
		})
	}
	for name, as := range alike {
		exprs, ok := namedSplits(name)
		require.True(t, ok, name)
		require.Equal(t, named[as], exprs)
	}
	_, ok := namedSplits("of nobody")
	require.False(t, ok)
}

func TestExpressions(t *testing.T) {
	for expr, want := range map[string][]string{
		`\s+`:             {"a", " \u00a0", "b", "\u2003", "1٣"},
		`\S`:              {"a", " \u00a0", "b", "\u2003", "1", "٣"},
		`[\d]`:            {"a \u00a0b\u2003", "1", "٣"},
		`\d+`:             {"a \u00a0b\u2003", "1٣"},
		`\w\W`:            {"a ", "\u00a0", "b\u2003", "1٣"},
		`x*`:              {"a \u00a0b\u2003" + "1٣"},
		`(a| )|\s+(?!\S)`: {"a", " ", "\u00a0", "b", "\u2003", "1٣"},
		`$`:               {"a \u00a0b\u2003" + "1٣"},
		``:                {"a \u00a0b\u2003" + "1٣"},
	} {
		require.Equal(t, want, words(t, []string{expr}, "a \u00a0b\u2003"+"1٣", true), expr)
	}

	for expr, says := range map[string]string{
		`a(?=b)`:                          `"(?="`,
		`\s+(?!\S)x`:                      `"(?!"`,
		`(?<=a)b`:                         `"(?<"`,
		`(?>a)`:                           `"(?>"`,
		`a++`:                             "nested repetition",
		`\p{Klingon}`:                     "character class",
		`[\S]`:                            `"\\S"`,
		`[a&&b]`:                          `"&&"`,
		`[a[b]]`:                          `"[ in ["`,
		`[]a]`:                            `"[]"`,
		`\b`:                              `"\\b"`,
		`(a`:                              "missing closing",
		`a)|\s+(?!\S)`:                    "unexpected )",
		`a\`:                              `"\\"`,
		`a\|\s+(?!\S)`:                    `"\\"`,
		`(\1)`:                            `"\\1"`,
		`((a{99}){99}){99}`:               "invalid repeat count",
		`(?:a{1000}){1000}`:               "invalid repeat count",
		strings.Repeat("x", maxPattern+1): "longer than",
	} {
		tok := &Tokenizer{spec: Spec{Scheme: ByteLevel, Splits: []string{`\p{N}`, expr}}}
		err := tok.setSplits()
		require.ErrorContains(t, err, "splits[1]: ", expr)
		require.ErrorContains(t, err, says, expr)
	}

	require.ErrorContains(t, (&Tokenizer{spec: Spec{Scheme: ByteLevel, Pattern: "klingon"}}).setSplits(), `pattern: "klingon"`)
	require.ErrorContains(t, (&Tokenizer{spec: Spec{Scheme: ByteLevel, Splits: make([]string, maxSplits+1)}}).setSplits(), "splits: 17")
}

// TestLongWords: a word longer than a look is found whole, and fruitless looks are
// counted.
func TestLongWords(t *testing.T) {
	long := strings.Repeat("世", 3*window)
	blanks := strings.Repeat(" ", 3*window)
	for _, text := range []string{long + "1", blanks + "a", long + blanks + "\n" + long, "ab" + blanks} {
		require.Equal(t, words(t, []string{llama3Split}, text, false), words(t, []string{llama3Split}, text, true))
	}

	require.Equal(t, []string{long, "7", long, " ", long}, words(t, []string{`\p{N}`, ` `}, long+"7"+long+" "+long, true))
	require.Equal(t, []string{long + " x", " "}, words(t, []string{`\s+$`}, long+" x ", true), "no end but the text's")

	s, err := newSplitter("a*b|a")
	require.NoError(t, err)
	text := strings.Repeat("a", 100*window)
	for _, budget := range []int{0, 1 << 30} {
		left := budget
		_, end := s.match(text, &left)
		require.Equal(t, 1, end)
		require.Equal(t, budget, left, "found in the first look")
	}

	s, err = newSplitter("a+")
	require.NoError(t, err)
	none, some := 0, 1<<30
	_, end := s.match(text, &none)
	require.Equal(t, window, end, "cut where looking further has no budget")
	_, end = s.match(text, &some)
	require.Equal(t, len(text), end)
	require.Less(t, 1<<30-some, 2*len(text))
}

// FuzzSplit: any expression is refused or loses no text.
func FuzzSplit(f *testing.F) {
	for _, exprs := range named {
		for _, e := range exprs {
			f.Add(e, "I'll go,  12345 x\n")
		}
	}

	f.Add(`(a*)*b`, strings.Repeat("a", 100))
	f.Fuzz(func(t *testing.T, expr, text string) {
		text = text[:min(len(text), 1000)]
		tok := &Tokenizer{spec: Spec{Scheme: ByteLevel, Splits: []string{expr}}}
		if tok.setSplits() != nil {
			return
		}
		all := ""
		tok.split(text, func(w string) bool {
			require.NotEmpty(t, w)
			all += w
			return true
		})
		require.Equal(t, text, all)
	})
}

// The cost of one token is bounded: no expression of an unknown file keeps a
// processor busy for long. The known ones are far below the bound.
func TestSplitSteps(t *testing.T) {
	require.LessOrEqual(t, window*maxPatternOp, 50_000)
	for _, expr := range []string{`[^b]{0,900}b|a`, `(?:[^b]?){0,300}b|a`, `(?:a|[^c]){0,400}c|a`, `[a-z]{0,500}[0-9]|.`} {
		_, err := newSplitter(expr)
		require.ErrorContains(t, err, "an expression of more than 384 steps", expr)
	}
	// For each of many short words only the first window is examined.
	sp, err := newSplitter(`(?:[^b]?){0,90}b|a`)
	require.NoError(t, err)
	budget := ahead * 4096
	start, end := sp.match(strings.Repeat("a", 4096), &budget)
	require.Equal(t, []int{0, 1}, []int{start, end})
	require.Equal(t, ahead*4096, budget)
}
