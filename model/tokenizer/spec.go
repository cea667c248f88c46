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
	// Of those that are taken whole (Control, User): the white space before or after it
	// goes with it, and whether it is looked for, itself normalised, in normalised text.
	LStrip, RStrip, Normalized bool
}

// Spec is a vocabulary and its rules, as a loader found them. Token numbers are -1 where
// there is none.
type Spec struct {
	Scheme Scheme
	Pieces []Piece // by token number
	// Merges is "a b", the best first. SentencePiece has them only where the file ranks
	// pairs and not pieces (tokenizer.json): then they count and the scores do not.
	Merges []string
	// Pattern is which split ByteLevel begins with: a name of GGUF's tokenizer.ggml.pre
	// ("gpt-2", "llama-bpe", …; "" is gpt-2's), or, beginning with "(", the expression
	// itself as tokenizer.json has it.
	Pattern string
	// Splits, where it is not nil, is used instead of Pattern: expressions, each of which
	// splits what the one before left. Empty: text is not split.
	Splits             []string
	BOS, EOS, EOT, Unk int
	Ends               []int // further tokens that end a text
	AddBOS, AddEOS     bool
	// SpacePrefix puts a space before text: SentencePiece always, ByteLevel unless the
	// text begins with one. So it does for text after a token that was taken whole.
	SpacePrefix bool
	// SpaceFirst restricts SpacePrefix to the very beginning, and SpaceOnce to text that
	// does not begin with a space (SentencePiece; tokenizer.json's Metaspace).
	SpaceFirst, SpaceOnce bool
	// IgnoreMerges takes a word that is a piece whole (ByteLevel; Llama 3).
	IgnoreMerges bool
	// NFC composes characters first.
	NFC bool
}
