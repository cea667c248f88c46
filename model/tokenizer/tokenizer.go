package tokenizer

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"capgpu/gpuerr"
)

// The bounds that every file must keep.
const (
	MaxVocab  = 1 << 20
	MaxMerges = 1 << 21
	MaxPiece  = 4096 // bytes of a piece
	MaxWhole  = 256  // bytes of a piece that is looked for in text: Control, User
	maxEnds   = 64
)

// space is SentencePiece's character for a space.
const space = "▁"

// unknownText is SentencePiece's text for a token of kind Unknown.
const unknownText = " ⁇ "

// Tokenizer is a vocabulary ready for use. It does not change; all methods may be called
// from any goroutine.
type Tokenizer struct {
	spec  Spec
	text  [][]byte // by token: what it adds to a text
	ends  map[int32]bool
	raw   matcher // pieces taken whole from the unchanged text
	later matcher // and from normalised text

	normal map[string]int32   // possible results of merging, as normalised text (SentencePiece) or bytes (ByteLevel)
	rank   []uint32           // of a piece: the lowest is merged first; unused if pairs is set
	pairs  map[[2]int32]merge // of two pieces
	bytes  [256]int32         // the piece of a byte, -1 if there is none
	splits []*splitter

	merged  int  // the longest normalised text of one merged token, in bytes; 0: no bound
	longest int  // the same for the unchanged text and any token
	apart   bool // only at its own beginning does a piece have the beginning of a word (SentencePiece)
}

// merge is the result of merging two pieces.
type merge struct {
	rank uint32
	id   int32
}

// New checks a Spec and makes it ready. Errors are gpuerr.Invalid and name the
// part. The Tokenizer owns the Spec from then on.
func New(s Spec) (*Tokenizer, error) {
	if s.Scheme > ByteLevel {
		return nil, gpuerr.New(gpuerr.Invalid, "scheme: %d is none", s.Scheme)
	}
	if n := len(s.Pieces); n < 1 || n > MaxVocab {
		return nil, gpuerr.New(gpuerr.Invalid, "pieces: %d are not within 1 to %d", n, MaxVocab)
	}
	if n := len(s.Merges); n > MaxMerges {
		return nil, gpuerr.New(gpuerr.Invalid, "merges: %d are more than %d", n, MaxMerges)
	}

	t := &Tokenizer{spec: s, ends: map[int32]bool{}}
	if err := t.setEnds(); err != nil {
		return nil, err
	}

	for _, step := range []func() error{t.setPieces, t.setWhole, t.setMerges, t.setSplits, t.setBounds} {
		if err := step(); err != nil {
			return nil, err
		}
	}

	return t, nil
}

// setEnds checks the numbers of special tokens. A token that begins or ends a text
// is Control, whatever the file says.
func (t *Tokenizer) setEnds() error {
	s := &t.spec
	if n := len(s.Ends); n > maxEnds {
		return gpuerr.New(gpuerr.Invalid, "ends: %d are more than %d", n, maxEnds)
	}

	named := []struct {
		name string
		id   int
		end  bool
	}{{"bos", s.BOS, false}, {"eos", s.EOS, true}, {"eot", s.EOT, true}, {"unk", s.Unk, false}}

	for i, id := range s.Ends {
		named = append(named, struct {
			name string
			id   int
			end  bool
		}{"ends[" + strconv.Itoa(i) + "]", id, true})
	}

	s.Pieces = slices.Clone(s.Pieces)
	for _, n := range named {
		if n.id < -1 || n.id >= len(s.Pieces) {
			return gpuerr.New(gpuerr.Invalid, "%s: token %d is not of the %d of the vocabulary", n.name, n.id, len(s.Pieces))
		}
		if n.id < 0 || n.name == "unk" {
			continue
		}
		if k := &s.Pieces[n.id].Kind; *k != Unknown && *k != Byte {
			*k = Control
		}
		if n.end {
			t.ends[int32(n.id)] = true
		}
	}

	for i, p := range s.Pieces {
		if (p.Kind == Control || p.Kind == User) && endings[string(p.Text)] {
			s.Pieces[i].Kind = Control
			t.ends[int32(i)] = true
		}
	}

	return nil
}

// endings are the pieces that end a turn or a text in the known families of models.
// Files name one or two of them; a model may use the others.
var endings = map[string]bool{
	"<|eot_id|>": true, "<|eom_id|>": true, "<|end_of_text|>": true, "<|endoftext|>": true, "<|im_end|>": true,
	"<|end|>": true, "<end_of_turn>": true, "<end_of_utterance>": true, "<EOT>": true, "<|EOT|>": true,
	"<｜end▁of▁sentence｜>": true,
}

// setPieces finds the text that each piece adds, and the text that can become it.
func (t *Tokenizer) setPieces() error {
	s := &t.spec
	t.text = make([][]byte, len(s.Pieces))
	t.normal = make(map[string]int32, len(s.Pieces))
	for b := range t.bytes {
		t.bytes[b] = -1
	}

	for i, p := range s.Pieces {
		if len(p.Text) > MaxPiece {
			return gpuerr.New(gpuerr.Invalid, "pieces[%d]: %d bytes are more than %d", i, len(p.Text), MaxPiece)
		}
		if math.IsNaN(float64(p.Score)) || math.IsInf(float64(p.Score), 0) {
			return gpuerr.New(gpuerr.Invalid, "pieces[%d]: score %g", i, p.Score)
		}

		switch p.Kind {
		case Control:
		case Unknown:
			t.text[i] = []byte(unknownText)

		case Byte:
			b, ok := byteOf(p.Text)
			if !ok {
				return gpuerr.New(gpuerr.Invalid, "pieces[%d]: %.20q is no byte", i, p.Text)
			}
			if other := t.bytes[b]; other >= 0 {
				return gpuerr.New(gpuerr.Invalid, "pieces[%d]: byte %#02x is piece %d", i, b, other)
			}
			t.bytes[b] = int32(i)
			t.text[i] = []byte{b}

		case User:
			t.text[i] = p.Text
			if s.Scheme == SentencePiece && !p.Normalized {
				t.text[i] = bytes.ReplaceAll(p.Text, []byte(space), []byte(" "))
			}

		case Normal, Unused:
			if err := t.setPiece(i, p); err != nil {
				return err
			}

		default:
			return gpuerr.New(gpuerr.Invalid, "pieces[%d]: kind %d is none", i, p.Kind)
		}
	}

	return nil
}

// setPiece adds a piece that merging can make.
func (t *Tokenizer) setPiece(i int, p Piece) error {
	key := string(p.Text)
	if t.spec.Scheme == ByteLevel {
		b, ok := fromPrintable(p.Text)
		if !ok {
			t.text[i] = p.Text // not of bytes: no merging makes it
			return nil
		}
		key, t.text[i] = string(b), b
		if len(b) == 1 && t.bytes[b[0]] < 0 && p.Kind == Normal {
			t.bytes[b[0]] = int32(i)
		}
	} else {
		t.text[i] = bytes.ReplaceAll(p.Text, []byte(space), []byte(" "))
	}

	if key == "" {
		return nil
	}

	if other, ok := t.normal[key]; ok {
		switch {
		case p.Kind == Unused:
			return nil
		case t.spec.Pieces[other].Kind != Unused:
			return gpuerr.New(gpuerr.Invalid, "pieces[%d]: %.40q is piece %d", i, p.Text, other)
		}
	}

	if p.Kind == Normal || t.spec.Scheme == SentencePiece {
		t.normal[key] = int32(i)
	}

	return nil
}

// byteOf reads "<0x0A>".
func byteOf(text []byte) (byte, bool) {
	if len(text) != 6 || string(text[:3]) != "<0x" || text[5] != '>' {
		return 0, false
	}
	v, err := strconv.ParseUint(string(text[3:5]), 16, 8)
	return byte(v), err == nil
}

// setWhole gathers the pieces that are matched in text before it is merged.
func (t *Tokenizer) setWhole() error {
	for i, p := range t.spec.Pieces {
		if p.Kind != Control && p.Kind != User || len(p.Text) == 0 {
			continue
		}
		if len(p.Text) > MaxWhole {
			return gpuerr.New(gpuerr.Invalid, "pieces[%d]: %d bytes of a piece taken whole are more than %d", i, len(p.Text), MaxWhole)
		}
		m, text := &t.raw, string(p.Text)
		if p.Normalized && t.normalises() {
			m, text = &t.later, t.normalise(text, true)
		} else if p.Kind == User {
			text = string(t.text[i])
		}
		if other, ok := m.add(text, int32(i)); !ok {
			return gpuerr.New(gpuerr.Invalid, "pieces[%d]: %.40q is piece %d", i, p.Text, other)
		}
	}
	return nil
}

// setMerges ranks pieces by score, or pairs of them by Merges.
func (t *Tokenizer) setMerges() error {
	s := &t.spec
	if s.Scheme == SentencePiece && len(s.Merges) == 0 {
		t.setRanks()
		return nil
	}

	id := make(map[string]int32, len(s.Pieces))
	for i, p := range s.Pieces {
		if _, ok := id[string(p.Text)]; !ok || p.Kind == Normal {
			id[string(p.Text)] = int32(i)
		}
	}

	t.pairs = make(map[[2]int32]merge, len(s.Merges))
	for rank, m := range s.Merges {
		a, b, ok := cutMerge(m)
		if !ok {
			return gpuerr.New(gpuerr.Invalid, "merges[%d]: %.40q is not of two parts", rank, m)
		}

		var ids [3]int32
		for i, text := range []string{a, b, a + b} {
			if ids[i], ok = id[text]; !ok {
				return gpuerr.New(gpuerr.Invalid, "merges[%d]: %.40q is no piece", rank, text)
			}
		}

		pair := [2]int32{ids[0], ids[1]}
		if _, ok := t.pairs[pair]; ok {
			return gpuerr.New(gpuerr.Invalid, "merges[%d]: %.40q is there twice", rank, m)
		}
		if t.spec.Pieces[ids[0]].Kind == Normal && t.spec.Pieces[ids[1]].Kind == Normal && t.spec.Pieces[ids[2]].Kind == Normal {
			t.pairs[pair] = merge{uint32(rank), ids[2]}
		} // otherwise it would make a piece that text never becomes
	}

	return nil
}

// setRanks sorts the pieces by score. Pieces of one score have one rank.
func (t *Tokenizer) setRanks() {
	pieces := t.spec.Pieces
	order := make([]int32, len(pieces))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(pieces[b].Score, pieces[a].Score) })
	t.rank = make([]uint32, len(pieces))
	for i := 1; i < len(order); i++ {
		r := t.rank[order[i-1]]
		if pieces[order[i]].Score != pieces[order[i-1]].Score {
			r++
		}
		t.rank[order[i]] = r
	}
}

// Vocab is the number of tokens.
func (t *Tokenizer) Vocab() int { return len(t.spec.Pieces) }

// Spec is the source of the Tokenizer. Nobody may write to it.
func (t *Tokenizer) Spec() Spec { return t.spec }

// BOS is the token that begins a text, -1 if there is none.
func (t *Tokenizer) BOS() int32 { return int32(t.spec.BOS) }

// IsEnd reports whether a token ends a text or a turn.
func (t *Tokenizer) IsEnd(id int32) bool { return t.ends[id] }

// Piece is the bytes that a token adds to a text: none for Control, and for a
// number that is no token. Nobody may write to them. They need not be whole
// characters; see Decoder.
func (t *Tokenizer) Piece(id int32) []byte {
	if id < 0 || int(id) >= len(t.text) {
		return nil
	}
	return t.text[id]
}

// ID is the token of a piece as the file writes it, of any kind; -1 if there is
// none.
func (t *Tokenizer) ID(text string) int32 {
	for i := range t.spec.Pieces {
		if string(t.spec.Pieces[i].Text) == text {
			return int32(i)
		}
	}
	return -1
}

// cutMerge cuts "a b" at its one space.
func cutMerge(m string) (a, b string, ok bool) {
	a, b, ok = strings.Cut(m, " ")
	return a, b, ok && a != "" && b != "" && !strings.Contains(b, " ")
}
