package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// These two functions implement the two most used expressions by hand; the tests
// compare them with the expressions. Every part of a text is a word.

// class is the classification of characters in the expressions.
type class uint8

const (
	other class = iota
	letter
	number
	blankRune
	newline // \r or \n, blank too
)

var asciiClass = func() (c [utf8.RuneSelf]class) {
	for r := range rune(utf8.RuneSelf) {
		c[r] = slowClass(r)
	}
	return c
}()

func slowClass(r rune) class {
	switch {
	case r == '\r' || r == '\n':
		return newline
	case unicode.IsSpace(r):
		return blankRune
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return number
	}
	return other
}

// classAt is the class and the length of the first character.
func classAt(text string) (class, int) {
	if text[0] < utf8.RuneSelf {
		return asciiClass[text[0]], 1
	}
	r, size := utf8.DecodeRuneInString(text)
	return slowClass(r), size
}

// run is the length in bytes of the leading characters of one class, at most most
// characters.
func run(text string, of class, most int) int {
	n := 0
	for ; n < len(text) && most > 0; most-- {
		c, size := classAt(text[n:])
		if c != of {
			break
		}
		n += size
	}
	return n
}

const all = 1 << 30

// blanks is the length of the leading white space, without its last character if a
// word follows and it is not the only one: \s+(?!\S)|\s+.
func blanks(text string) int {
	n, last := 0, 0
	for n < len(text) {
		c, size := classAt(text[n:])
		if c < blankRune {
			if n == last {
				return n
			}
			return n - last
		}
		n, last = n+size, size
	}
	return n
}

// gpt2Word is gpt2Split.
func gpt2Word(text string) int {
	if n := contraction(text, false); n > 0 {
		return n
	}
	from := 0
	if text[0] == ' ' && len(text) > 1 {
		from = 1
	}
	c, _ := classAt(text[from:])
	if c >= blankRune {
		return blanks(text)
	}
	return from + run(text[from:], c, all)
}

// llama3Word is llama3Split with 3 digits, qwen2Split with 1.
func llama3Word(text string, digits int) int {
	if n := contraction(text, true); n > 0 {
		return n
	}

	c, size := classAt(text)
	switch {
	case c == letter:
		return run(text, letter, all)
	case c == number:
		return run(text, number, digits)
	case c != newline && len(text) > size:
		if n := run(text[size:], letter, all); n > 0 {
			return size + n
		}
	}

	from := 0
	if text[0] == ' ' {
		from = 1
	}
	if n := run(text[from:], other, all); n > 0 {
		n += from
		return n + run(text[n:], newline, all)
	}
	if n := lines(text); n > 0 {
		return n
	}

	return blanks(text)
}

// lines is the length of the white space up to its last newline, 0 without one:
// \s*[\r\n]+.
func lines(text string) int {
	found := 0
	for n := 0; n < len(text); {
		c, size := classAt(text[n:])
		if c < blankRune {
			break
		}
		n += size
		if c == newline {
			found = n
		}
	}
	return found
}

// contraction is the length of 's, 't, 're, 've, 'm, 'll or 'd.
func contraction(text string, anyCase bool) int {
	if len(text) < 2 || text[0] != '\'' {
		return 0
	}

	a, size := fold(text[1:], anyCase)
	switch a {
	case 's', 't', 'm', 'd':
		return 1 + size
	}

	if len(text) == 1+size {
		return 0
	}

	b, more := fold(text[1+size:], anyCase)
	switch {
	case a == 'r' && b == 'e', a == 'v' && b == 'e', a == 'l' && b == 'l':
		return 1 + size + more
	}

	return 0
}

// fold returns the first character, in lower case if case does not matter. Two
// non-ASCII characters fold to ASCII; this one is among the letters above.
func fold(text string, anyCase bool) (rune, int) {
	r, size := utf8.DecodeRuneInString(text)
	switch {
	case !anyCase:
	case r == 'ſ':
		r = 's'
	case r >= 'A' && r <= 'Z':
		r += 'a' - 'A'
	}
	return r, size
}
