package tokenizer

// Scheme is the algorithm that makes tokens of text.
type Scheme uint8

const (
	// SentencePiece merges characters, the pair with the best score first. Text
	// without a piece becomes the pieces of its bytes ("<0x0A>").
	SentencePiece Scheme = iota
	// ByteLevel splits text by a pattern, writes bytes as printable characters, and
	// merges them in the order of Merges.
	ByteLevel
)

// Kind is the kind of a piece.
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
	// For whole pieces (Control, User): whether the white space before or after
	// goes with the piece, and whether the normalised piece is matched in
	// normalised text.
	LStrip, RStrip, Normalized bool
}

// Spec is a vocabulary and its rules, as a loader found them. A missing token has
// number -1.
type Spec struct {
	Scheme Scheme
	Pieces []Piece // by token number
	// Merges are "a b", the best first. SentencePiece has them only if the file
	// ranks pairs and not pieces (tokenizer.json): then they count and the scores
	// do not.
	Merges []string
	// Pattern is the first split of ByteLevel: a name of GGUF's tokenizer.ggml.pre
	// ("gpt-2", "llama-bpe", …; "" is gpt-2's), or, beginning with "(", the
	// expression itself as tokenizer.json has it.
	Pattern string
	// Splits, if not nil, replaces Pattern: expressions, each of which splits the
	// result of the one before. Empty: text is not split.
	Splits             []string
	BOS, EOS, EOT, Unk int
	Ends               []int // further tokens that end a text
	AddBOS, AddEOS     bool
	// SpacePrefix puts a space before text: SentencePiece always, ByteLevel unless
	// the text begins with one. It does the same for text after a whole piece.
	SpacePrefix bool
	// SpaceFirst restricts SpacePrefix to the very beginning, and SpaceOnce to text that
	// does not begin with a space (SentencePiece; tokenizer.json's Metaspace).
	SpaceFirst, SpaceOnce bool
	// IgnoreMerges takes a word whole if it is a piece (ByteLevel; Llama 3).
	IgnoreMerges bool
	// NFC composes characters first.
	NFC bool
}
