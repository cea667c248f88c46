package tokenizer

import (
	"fmt"
	"strings"
)

// The meaning of \s and \w in the expressions of tokenizer.json (Oniguruma, over
// Unicode), as the inside of a class; package regexp's are ASCII.
const (
	blank    = `\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}`
	wordRune = `\p{L}\p{M}\p{N}\p{Pc}`
)

// translate rewrites an expression of tokenizer.json for package regexp. It refuses
// constructs with another meaning there; package regexp itself refuses those that
// it does not know.
func translate(expr string) (string, error) {
	var out strings.Builder
	class := false
	refuse := func(what string) (string, error) {
		return "", fmt.Errorf("%q in an expression is not supported", what)
	}

	for i := 0; i < len(expr); i++ {
		rest := expr[i:]
		switch {
		case expr[i] == '\\':
			if len(rest) < 2 {
				return refuse(rest)
			}
			i++
			to, ok := escape(rest[1], class)
			if !ok {
				return refuse(rest[:2])
			}
			out.WriteString(to)

		case class && strings.HasPrefix(rest, "&&"):
			return refuse("&&")
		case class && rest[0] == '[':
			return refuse("[ in [")

		case class && rest[0] == ']':
			class = false
			out.WriteByte(']')

		case class:
			out.WriteByte(rest[0])
		case rest[0] == '[':
			class = true
			out.WriteByte('[')
			if strings.HasPrefix(rest[1:], "^") {
				i++
				out.WriteByte('^')
			}
			if strings.HasPrefix(expr[i+1:], "]") {
				return refuse("[]")
			}

		case rest[0] == '^':
			out.WriteString(`(?m:^)`)
		case rest[0] == '$':
			out.WriteString(`(?m:$)`)

		case strings.HasPrefix(rest, "(?=") || strings.HasPrefix(rest, "(?!") || strings.HasPrefix(rest, "(?<") || strings.HasPrefix(rest, "(?>"):
			return refuse(rest[:3])
		default:
			out.WriteByte(rest[0])
		}
	}

	return out.String(), nil
}

// escape is a backslash and a letter.
func escape(c byte, class bool) (string, bool) {
	wrap := func(inside string) string {
		if class {
			return inside
		}
		return "[" + inside + "]"
	}

	switch c {
	case 's':
		return wrap(blank), true

	case 'w':
		return wrap(wordRune), true
	case 'd':
		return `\p{Nd}`, true

	case 'D':
		return `\P{Nd}`, true
	case 'S', 'W':
		if class {
			return "", false // package regexp has no class within a class
		}
		if c == 'S' {
			return "[^" + blank + "]", true
		}
		return "[^" + wordRune + "]", true

	case 'n', 'r', 't', 'f', 'v', 'a', 'x', 'p', 'P', 'A', 'z':
		return `\` + string(c), true
	}

	// Any other letter or digit has another meaning there, or none here.
	if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80 {
		return "", false
	}

	return `\` + string(c), true
}
