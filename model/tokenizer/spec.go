package tokenizer

// Scheme is how text becomes tokens.
type Scheme uint8

const (
	// SentencePiece merges characters, the pair with the best score first; what has no
	// piece becomes the pieces of its bytes ("<0x0A>").
	SentencePiece Scheme = iota
	// ByteLevel splits text by a pattern, writes bytes as printable characters, and
	// merges them in the order of Merges.
	ByteLevel
)

// Kind is what a piece is.
type Kind uint8

const (
	Normal Kind = iota
	Unknown
	Control // "<s>": never made from text, unless special tokens are asked for; no text of its own
	User    // added: matched whole before all else, and its own text
	Byte    // "<0x0A>"
	Unused
)

// Piece is one entry of a vocabulary.
type Piece struct {
	Text  []byte // as the file has it: SentencePiece with U+2581 for a space, ByteLevel as printable characters
	Score float32
	Kind  Kind
}

// Spec is a vocabulary and its rules, as a loader found them. Token numbers are -1 where
// there is none.
type Spec struct {
	Scheme Scheme
	Pieces []Piece  // by token number
	Merges []string // ByteLevel: "a b", the best first
	// Pattern is which split ByteLevel begins with: a name of GGUF's tokenizer.ggml.pre
	// ("gpt-2", "llama-bpe", …; "" is gpt-2's), or, beginning with "(", the expression
	// itself as tokenizer.json has it.
	Pattern            string
	BOS, EOS, EOT, Unk int
	AddBOS, AddEOS     bool
	// SpacePrefix puts a space before text (SentencePiece).
	SpacePrefix bool
	// IgnoreMerges takes a word that is a piece whole (ByteLevel; Llama 3).
	IgnoreMerges bool
}

// Tokenizer is a vocabulary ready for use. It does not change; all methods may be called
// from any goroutine.
type Tokenizer struct {
	spec Spec
}
