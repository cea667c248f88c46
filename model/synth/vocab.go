package synth

import (
	"fmt"
	"strings"

	"capgpu/model/tokenizer"
)

// minVocab has room for the special tokens and all bytes.
const minVocab = 3 + 256 + 1

// words are the words of a small vocabulary.
const words = "the and to a was he she it in of they said that on his her with for is had you but there so up day i be not all " +
	"little one very happy big play like went saw not time tree mom dad dog cat ball park friend home house bird water sun " +
	"wanted looked could would then when what who how where him them out into were have as my me we do go can see look get " +
	"come good bad new old small red blue green day night boy girl man car box door garden flower fish rain light make made " +
	"ask help know think find found take took put give gave run ran laugh smile love thank please sorry yes no more again"

// filler generates further words, as long as there is room: combined syllables.
func filler(n int) string {
	const consonants, vowels = "bdfgklmnprstvz", "aeiou"
	base := len(consonants) * len(vowels)
	var b strings.Builder
	for n++; n > 0; n /= base {
		k := n % base
		b.WriteByte(consonants[k/len(vowels)])
		b.WriteByte(vowels[k%len(vowels)])
	}
	return b.String()
}

// merged calls f with (left, right) for each merge that leads to the words, the
// best first, until it returns false. Every left is a character or an earlier
// result; every right is a character. space begins a word.
func merged(space string, f func(left, right string) bool) {
	known := map[string]bool{}
	add := func(word string) bool {
		left := space
		for _, r := range word {
			if next := left + string(r); !known[next] {
				known[next] = true
				if !f(left, string(r)) {
					return false
				}
			}
			left += string(r)
		}
		return true
	}

	for _, w := range strings.Fields(words) {
		if !add(w) {
			return
		}
	}

	for i := 0; add(filler(i)); i++ {
	}
}

// sentencePiece is a vocabulary of n pieces: the special ones, bytes, printable ASCII,
// words with all their beginnings.
func sentencePiece(n int) tokenizer.Spec {
	const space = "\u2581"
	s := tokenizer.Spec{
		Scheme: tokenizer.SentencePiece, BOS: 1, EOS: 2, EOT: -1, Unk: 0, AddBOS: true, SpacePrefix: true,
		Pieces: []tokenizer.Piece{
			{Text: []byte("<unk>"), Kind: tokenizer.Unknown},
			{Text: []byte("<s>"), Kind: tokenizer.Control},
			{Text: []byte("</s>"), Kind: tokenizer.Control},
		},
	}

	for b := range 256 {
		s.Pieces = append(s.Pieces, tokenizer.Piece{Text: fmt.Appendf(nil, "<0x%02X>", b), Kind: tokenizer.Byte})
	}

	add := func(text string) bool {
		if len(s.Pieces) == n {
			return false
		}
		score := -float32(len(s.Pieces) - 259)
		s.Pieces = append(s.Pieces, tokenizer.Piece{Text: []byte(text), Score: score})
		return true
	}

	add(space)
	for _, chars := range []string{"az", "AZ", "09", "!/", ":@", "[`", "{~"} {
		for c := chars[0]; c <= chars[1]; c++ {
			add(string(rune(c)))
		}
	}

	merged(space, func(left, right string) bool { return add(left + right) })
	return s
}

// byteLevel is a vocabulary of n pieces after Llama 3's: bytes, words with all their
// beginnings, the special ones.
func byteLevel(n int) tokenizer.Spec {
	s := tokenizer.Spec{
		Scheme: tokenizer.ByteLevel, Pattern: "llama-bpe", IgnoreMerges: true, AddBOS: true,
		BOS: n - 2, EOS: n - 1, EOT: -1, Unk: -1,
	}

	// The characters that stand for bytes, in GPT-2's order: the printable ones first.
	printable := func(b int) bool { return b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xFF && b != 0xAD }
	add := func(text string) { s.Pieces = append(s.Pieces, tokenizer.Piece{Text: []byte(text)}) }
	for b := range 256 {
		if printable(b) {
			add(string(rune(b)))
		}
	}

	next := 256
	for b := range 256 {
		if !printable(b) {
			add(string(rune(next)))
			next++
		}
	}

	const space = "\u0120" // of byte 0x20
	merged(space, func(left, right string) bool {
		if len(s.Pieces) >= n-2 {
			return false
		}
		s.Merges = append(s.Merges, left+" "+right)
		add(left + right)
		return true
	})

	for _, special := range []string{"<|begin_of_text|>", "<|end_of_text|>"} {
		s.Pieces = append(s.Pieces, tokenizer.Piece{Text: []byte(special), Kind: tokenizer.Control})
	}

	return s
}
