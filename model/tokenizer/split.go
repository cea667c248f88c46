package tokenizer

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	"capgpu/gpuerr"
)

const (
	maxSplits    = 16
	maxPattern   = 1 << 13 // bytes of an expression
	maxPatternOp = 384     // approximate length of the compiled expression; each instruction can cost a step for each byte examined
	// window is the length of the text that is searched first for a match. A match
	// that is decided there costs at most that much, also for an expression that
	// looks far ahead for each short word, as "a*b|a" does. Otherwise more is
	// searched, and all such searches cost at most ahead times the text; after that
	// words are cut.
	window = 128
	ahead  = 8
)

// splitter cuts text at the matches of one expression: the matches and the texts
// between them are words.
type splitter struct {
	re *regexp.Regexp
	// blanks means that the first group is white space before a word, and that its
	// last character belongs to the word: the meaning of "\s+(?!\S)|\s+" at the end
	// of an expression, which an automaton cannot express.
	blanks bool
	// word, if not nil, replaces re for a non-empty text: it returns the length of
	// the first word.
	word func(text string) int
}

// setSplits compiles the expressions of the Spec.
func (t *Tokenizer) setSplits() error {
	s := &t.spec
	if s.Scheme != ByteLevel {
		return nil
	}

	exprs := s.Splits
	if exprs == nil && strings.HasPrefix(s.Pattern, "(") {
		exprs = []string{s.Pattern}
	} else if exprs == nil {
		var ok bool
		if exprs, ok = namedSplits(s.Pattern); !ok {
			return gpuerr.New(gpuerr.Invalid, "pattern: %.40q is no known split", s.Pattern)
		}
	}

	if n := len(exprs); n > maxSplits {
		return gpuerr.New(gpuerr.Invalid, "splits: %d are more than %d", n, maxSplits)
	}

	for i, e := range exprs {
		sp, err := newSplitter(e)
		if err != nil {
			return gpuerr.New(gpuerr.Invalid, "splits[%d]: %v", i, err)
		}
		switch e {
		case gpt2Split:
			sp.word = gpt2Word
		case llama3Split:
			sp.word = func(text string) int { return llama3Word(text, 3) }
		case qwen2Split:
			sp.word = func(text string) int { return llama3Word(text, 1) }
		}
		t.splits = append(t.splits, sp)
	}

	return nil
}

// newSplitter compiles an expression of tokenizer.json.
func newSplitter(expr string) (*splitter, error) {
	if len(expr) > maxPattern {
		return nil, fmt.Errorf("an expression of %d bytes is longer than %d", len(expr), maxPattern)
	}

	body, blanks := strings.CutSuffix(strings.TrimSuffix(expr, `|\s+`), `|\s+(?!\S)`)
	if !blanks {
		body = expr
	}

	body, err := translate(body)
	if err != nil {
		return nil, err
	}

	// Parse the expression alone first: none of its brackets may close the group
	// around it.
	parsed, err := syntax.Parse(body, syntax.Perl)
	if err != nil {
		return nil, err
	}
	if ops(parsed) > maxPatternOp {
		return nil, fmt.Errorf("an expression of more than %d steps", maxPatternOp)
	}
	if blanks {
		body = "(?:" + body + ")|([" + blank + "]+)"
	}

	re, err := regexp.Compile(body)
	if err != nil {
		return nil, err
	}

	return &splitter{re: re, blanks: blanks}, nil
}

// ops approximates the number of instructions of a compiled expression.
func ops(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)/64
	if re.Op == syntax.OpLiteral {
		n = len(re.Rune)
	}
	for _, sub := range re.Sub {
		n = min(n+ops(sub), 1<<24)
	}
	if re.Op == syntax.OpRepeat {
		n = min(n*max(re.Min, re.Max, 1), 1<<24)
	}
	return n
}

// split calls yield for each word of a text, in order, until it returns false.
func (t *Tokenizer) split(text string, yield func(word string) bool) {
	splitAll(t.splits, text, yield)
}

func splitAll(splits []*splitter, text string, yield func(word string) bool) bool {
	if len(splits) == 0 {
		return text == "" || yield(text)
	}
	return splits[0].cut(text, func(word string) bool { return splitAll(splits[1:], word, yield) })
}

// cut calls yield for the words of a text, and reports whether yield always
// returned true.
func (s *splitter) cut(text string, yield func(word string) bool) bool {
	for s.word != nil && text != "" {
		n := s.word(text)
		if !yield(text[:n]) {
			return false
		}
		text = text[n:]
	}
	for budget := ahead * len(text); text != ""; {
		start, end := s.match(text, &budget)
		if start > 0 && !yield(text[:start]) || end > start && !yield(text[start:end]) {
			return false
		}
		text = text[end:]
	}
	return true
}

// match is the first match; where there is none, the end of what was looked at.
func (s *splitter) match(text string, budget *int) (start, end int) {
	for size := window; ; size *= 2 {
		seen := len(text)
		if seen > size {
			for seen = size; seen > size-utf8.UTFMax && !utf8.RuneStart(text[seen]); {
				seen--
			}
		}
		start, end, ok := s.find(text[:seen])
		if !ok {
			start, end = seen, seen
		}
		if settled := seen == len(text) || ok && end < seen; settled || *budget < seen {
			return start, end
		}
		*budget -= seen
	}
}

// find is the first match that is not empty.
func (s *splitter) find(text string) (start, end int, ok bool) {
	for from := 0; from < len(text); {
		m := s.re.FindStringSubmatchIndex(text[from:])
		if m == nil {
			return 0, 0, false
		}

		start, end = from+m[0], from+m[1]
		if start == end {
			_, size := utf8.DecodeRuneInString(text[end:])
			from = end + max(size, 1)
			continue
		}

		if s.blanks && m[len(m)-1] >= 0 && end < len(text) {
			if _, size := utf8.DecodeLastRuneInString(text[start:end]); start+size < end {
				end -= size
			}
		}

		return start, end, true
	}
	return 0, 0, false
}
