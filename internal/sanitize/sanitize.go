// Package sanitize makes text from an untrusted process fit to be shown.
package sanitize

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Text is s with each character that cannot be printed (an escape sequence for a
// terminal, a new line, what reverses the direction of reading, what is no UTF-8)
// written as Go would write it in a string. Plain text stays as it is.
func Text(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r == utf8.RuneError || !strconv.IsPrint(r) }) {
		return s
	}

	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError || !strconv.IsPrint(r) {
			q := strconv.Quote(s[:n])
			b.WriteString(q[1 : len(q)-1])
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}

	return b.String()
}
