package sanitize

import (
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"":                         "",
		"no coffee left: \"é\" \\": "no coffee left: \"é\" \\",
		"\x1b]0;owned\x07":         `\x1b]0;owned\a`,
		"a\nb\r\tc":                `a\nb\r\tc`,
		"\u202egnp.exe":            `\u202egnp.exe`,
		"bad \xff\xc3":             `bad \xff\xc3`,
		"\u0085\u009b31m":          `\u0085\u009b31m`,
	} {
		require.Equal(t, want, Text(in), "%q", in)
	}
}

func FuzzText(f *testing.F) {
	f.Add("\x1b[31m\xff")
	f.Fuzz(func(t *testing.T, s string) {
		p := Text(s)
		if !utf8.ValidString(p) {
			t.Fatalf("%q becomes %q, which is no UTF-8", s, p)
		}
		if again := Text(p); again != p {
			t.Fatalf("%q becomes %q, and that %q", s, p, again)
		}
	})
}
