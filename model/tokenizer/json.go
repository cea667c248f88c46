package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"capgpu/gpuerr"
)

// MaxJSON is the largest size of a tokenizer.json, in bytes.
const MaxJSON = 1 << 28

// FromJSON reads Hugging Face's tokenizer.json and, unless it is empty,
// tokenizer_config.json, from which it takes the special tokens and the chat
// template (Jinja; "" if there is none). It supports BPE over bytes (ByteLevel) and
// BPE with byte fallback (Llama 2). It refuses anything else by name, with
// gpuerr.Invalid.
//
// A special token (Control) is matched in the unchanged text, whatever its
// "normalized" says. Truncation and padding are ignored.
func FromJSON(tokenizerJSON, tokenizerConfig []byte) (t *Tokenizer, template string, err error) {
	fail := func(file string, err error) (*Tokenizer, string, error) {
		return nil, "", gpuerr.New(gpuerr.Invalid, "%s: %v", file, err)
	}

	if n := max(len(tokenizerJSON), len(tokenizerConfig)); n > MaxJSON {
		return fail("tokenizer.json", fmt.Errorf("%d bytes are more than %d", n, MaxJSON))
	}

	var f jsonFile
	if err := json.Unmarshal(tokenizerJSON, &f); err != nil {
		return fail("tokenizer.json", err)
	}

	var c jsonConfig
	if len(tokenizerConfig) > 0 {
		if err := json.Unmarshal(tokenizerConfig, &c); err != nil {
			return fail("tokenizer_config.json", err)
		}
	}

	r := &jsonReader{s: Spec{BOS: -1, EOS: -1, EOT: -1, Unk: -1}}
	for _, step := range []struct {
		name string
		do   func(*jsonFile) error
	}{
		{"model", r.model}, {"normalizer", r.normalizer}, {"pre_tokenizer", r.preTokenizer}, {"", r.scheme},
		{"model.vocab", r.vocab}, {"added_tokens", r.added}, {"post_processor", r.postProcessor},
	} {
		if err := step.do(&f); err != nil {
			if step.name != "" {
				err = fmt.Errorf("%s: %w", step.name, err)
			}
			return fail("tokenizer.json", err)
		}
	}

	if err := r.config(&c); err != nil {
		return fail("tokenizer_config.json", err)
	}

	t, err = New(r.s)
	if err != nil {
		return fail("tokenizer.json", err)
	}

	return t, string(c.ChatTemplate), nil
}

// jsonFile is a tokenizer.json. Members with several possible types are read later.
type jsonFile struct {
	AddedTokens   []jsonAdded     `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Model         struct {
		Type         string     `json:"type"`
		Vocab        jsonVocab  `json:"vocab"`
		Merges       jsonMerges `json:"merges"`
		UnkToken     *string    `json:"unk_token"`
		ByteFallback bool       `json:"byte_fallback"`
		FuseUnk      bool       `json:"fuse_unk"`
		IgnoreMerges bool       `json:"ignore_merges"`
		Dropout      *float64   `json:"dropout"`
		Prefix       *string    `json:"continuing_subword_prefix"`
		Suffix       *string    `json:"end_of_word_suffix"`
	} `json:"model"`
}

type jsonAdded struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// jsonVocab is {"text": number, …}, with each text once.
type jsonVocab []jsonEntry

type jsonEntry struct {
	text string
	id   int
}

func (v *jsonVocab) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return fmt.Errorf("vocab is no object")
	}

	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}

		value, err := d.Token()
		if err != nil {
			return err
		}

		id, ok := value.(float64)
		if !ok || id != float64(int32(id)) || id < 0 || id >= MaxVocab {
			return fmt.Errorf("vocab: %.40q is token %v, not within 0 to %d", key, value, MaxVocab-1)
		}
		if len(*v) >= MaxVocab {
			return fmt.Errorf("vocab: more than %d tokens", MaxVocab)
		}

		*v = append(*v, jsonEntry{key.(string), int(id)})
	}

	return nil
}

// jsonMerges is ["a b", …] or [["a", "b"], …], as "a b".
type jsonMerges []string

func (m *jsonMerges) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if open, err := d.Token(); err != nil || open != json.Delim('[') {
		return fmt.Errorf("merges are no array")
	}

	for d.More() {
		token, err := d.Token()
		if err != nil {
			return err
		}

		merge, ok := token.(string)
		if token == json.Delim('[') {
			var parts []string
			for d.More() && len(parts) < 3 {
				part, err := d.Token()
				if err != nil {
					return err
				}
				text, isText := part.(string)
				if !isText || strings.Contains(text, " ") {
					return fmt.Errorf("merges[%d]: %v is no part of a merge", len(*m), part)
				}
				parts = append(parts, text)
			}

			end, err := d.Token()
			if err != nil {
				return err
			}

			merge, ok = strings.Join(parts, " "), len(parts) == 2 && end == json.Delim(']')
		}

		if !ok {
			return fmt.Errorf("merges[%d]: neither a text nor a pair", len(*m))
		}
		if len(*m) >= MaxMerges {
			return fmt.Errorf("merges: more than %d", MaxMerges)
		}

		*m = append(*m, merge)
	}

	return nil
}

// jsonReader makes a Spec of a file.
type jsonReader struct {
	s Spec
	// Set by the normalizer and the pre_tokenizer, before scheme checks them.
	prepends, replaces, metaspace, byteLevel bool
}

func (r *jsonReader) model(f *jsonFile) error {
	m := &f.Model
	switch {
	case m.Type != "BPE":
		return fmt.Errorf("type %.40q is not supported", m.Type)
	case m.Dropout != nil && *m.Dropout != 0:
		return fmt.Errorf("dropout is not supported")
	case m.Prefix != nil && *m.Prefix != "":
		return fmt.Errorf("continuing_subword_prefix is not supported")
	case m.Suffix != nil && *m.Suffix != "":
		return fmt.Errorf("end_of_word_suffix is not supported")
	}
	r.s.IgnoreMerges, r.s.Merges = m.IgnoreMerges, m.Merges
	return nil
}

// scheme matches the findings with one of the two kinds of BPE.
func (r *jsonReader) scheme(f *jsonFile) error {
	switch {
	case r.byteLevel && f.Model.ByteFallback:
		return fmt.Errorf("model: byte_fallback with ByteLevel is not supported")
	case r.byteLevel && (r.prepends || r.replaces):
		return fmt.Errorf("normalizer: Prepend and Replace with ByteLevel are not supported")
	case r.byteLevel:
		r.s.Scheme = ByteLevel
		return nil
	case !f.Model.ByteFallback:
		return fmt.Errorf("model: BPE with neither ByteLevel nor byte_fallback is not supported")
	case !r.replaces && !r.metaspace:
		return fmt.Errorf("normalizer: byte_fallback without spaces as %s is not supported", space)
	case r.prepends && r.metaspace:
		return fmt.Errorf("normalizer: Prepend with Metaspace is not supported")
	case f.Model.IgnoreMerges:
		return fmt.Errorf("model: ignore_merges with byte_fallback is not supported")
	}

	r.s.Scheme = SentencePiece
	return nil
}

// vocab assigns the tokens to their numbers.
func (r *jsonReader) vocab(f *jsonFile) error {
	v, most := f.Model.Vocab, -1
	if len(v) == 0 {
		return fmt.Errorf("there is none")
	}

	seen := make(map[string]bool, len(v))
	for _, e := range v {
		if seen[e.text] {
			return fmt.Errorf("%.40q is there twice", e.text)
		}
		seen[e.text] = true
		most = max(most, e.id)
	}

	for _, a := range f.AddedTokens {
		if a.ID < 0 || a.ID >= MaxVocab {
			return fmt.Errorf("added token %.40q is token %d, not within 0 to %d", a.Content, a.ID, MaxVocab-1)
		}
		most = max(most, a.ID)
	}

	// Some numbers may be unused, but not most of them.
	if n := len(v) + len(f.AddedTokens); most >= 2*n+1024 {
		return fmt.Errorf("token %d of a vocabulary of %d", most, n)
	}

	r.s.Pieces = make([]Piece, most+1)
	for i := range r.s.Pieces {
		r.s.Pieces[i].Kind = Unused
	}

	for _, e := range v {
		p := &r.s.Pieces[e.id]
		if p.Text != nil {
			return fmt.Errorf("%.40q and %.40q are both token %d", p.Text, e.text, e.id)
		}
		*p = Piece{Text: []byte(e.text)}
		if _, ok := byteOf(p.Text); ok && r.s.Scheme == SentencePiece {
			p.Kind = Byte
		}
		if u := f.Model.UnkToken; u != nil && *u == e.text {
			p.Kind, r.s.Unk = Unknown, e.id
		}
	}

	if r.s.Scheme == SentencePiece {
		return r.bytesOf(f, seen)
	}
	return nil
}

// bytesOf wants a piece for each byte, or for none: text without a piece is then
// unknown, and adjacent unknown text one token (fuse_unk).
func (r *jsonReader) bytesOf(f *jsonFile, seen map[string]bool) error {
	missing, first := 0, ""
	for b := range 256 {
		if text := fmt.Sprintf("<0x%02X>", b); !seen[text] {
			if missing++; first == "" {
				first = text
			}
		}
	}

	switch {
	case missing == 0:
		return nil
	case missing < 256:
		return fmt.Errorf("byte_fallback without %s", first)
	case r.s.Unk < 0:
		return fmt.Errorf("byte_fallback without %s, and there is no unk_token", first)
	case !f.Model.FuseUnk:
		return fmt.Errorf("byte_fallback without %s, and fuse_unk is not true", first)
	}
	return nil
}

// added makes pieces of the added tokens, or changes those of the vocabulary.
func (r *jsonReader) added(f *jsonFile) error {
	for i, a := range f.AddedTokens {
		p := &r.s.Pieces[a.ID]
		switch {
		case a.SingleWord:
			return fmt.Errorf("[%d]: %.40q: single_word is not supported", i, a.Content)
		case p.Text != nil && string(p.Text) != a.Content:
			return fmt.Errorf("[%d]: %.40q is token %d, which is %.40q", i, a.Content, a.ID, p.Text)
		case p.Kind == Control || p.Kind == User:
			return fmt.Errorf("[%d]: %.40q is there twice", i, a.Content)
		case p.Kind == Unknown:
			continue
		}

		*p = Piece{Text: []byte(a.Content), Kind: User, LStrip: a.LStrip, RStrip: a.RStrip}
		p.Normalized = a.Normalized && (r.prepends || r.replaces || r.s.NFC)
		if a.Special {
			p.Kind, p.Normalized = Control, false
		}
	}
	return nil
}
