package gguf

import (
	"math"
	"slices"
	"strings"

	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/model/tokenizer"
)

const none = math.MaxUint32 // a converter's mark for a missing token

// kinds are the types of the pieces, from 1.
var kinds = [...]tokenizer.Kind{tokenizer.Normal, tokenizer.Unknown, tokenizer.Control, tokenizer.User, tokenizer.Unused, tokenizer.Byte}

// wholeWords are names of patterns. Their tokenizers take a word whole if it is a
// piece, and begin a text too, unless the file says otherwise (llama.cpp,
// llama-vocab.cpp).
var wholeWords = []string{"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "tekken"}

// Spec is the vocabulary of a file and its rules. Errors name the key.
func (h *Header) Spec() (tokenizer.Spec, error) {
	s := tokenizer.Spec{BOS: -1, EOS: -1, EOT: -1, Unk: -1}
	kind, err := h.text("tokenizer.ggml.model", 64)
	if err != nil {
		return s, err
	}

	switch kind {
	case "llama":
		s.Scheme = tokenizer.SentencePiece
		s.BOS, s.EOS, s.Unk = 1, 2, 0
		s.AddBOS, s.SpacePrefix = true, true

	case "gpt2":
		s.Scheme = tokenizer.ByteLevel
		if s.Pattern, err = h.text("tokenizer.ggml.pre", 64); err != nil {
			return s, err
		}
		if strings.HasPrefix(s.Pattern, "(") {
			return s, gpuerr.New(gpuerr.Invalid, "tokenizer.ggml.pre: %q is no name", s.Pattern)
		}
		s.IgnoreMerges = slices.Contains(wholeWords, s.Pattern)
		s.AddBOS = s.IgnoreMerges

	case "":
		return s, gpuerr.New(gpuerr.Invalid, "tokenizer.ggml.model: is missing")
	default:
		return s, gpuerr.New(gpuerr.Invalid, "tokenizer.ggml.model: %q is not supported; \"llama\" and \"gpt2\" are", kind)
	}

	if err := h.pieces(&s); err != nil {
		return s, err
	}

	if s.Scheme == tokenizer.ByteLevel {
		merges, err := h.texts("tokenizer.ggml.merges", tokenizer.MaxMerges)
		if err != nil {
			return s, err
		}
		s.Merges = make([]string, len(merges))
		for i, m := range merges {
			s.Merges[i] = string(m)
		}
	}

	return s, h.special(&s)
}

// pieces reads the tokens, their scores and types.
func (h *Header) pieces(s *tokenizer.Spec) error {
	const key = "tokenizer.ggml.tokens"
	texts, err := h.texts(key, model.MaxVocab)
	if err != nil {
		return err
	}
	if len(texts) == 0 {
		return gpuerr.New(gpuerr.Invalid, "%s: is missing", key)
	}

	s.Pieces = make([]tokenizer.Piece, len(texts))
	for i, t := range texts {
		s.Pieces[i].Text = t
	}

	each := func(key, what string, types ...uint32) (*cursor, error) {
		c, n, err := h.array(key, what, model.MaxVocab, types...)
		if err == nil && c != nil && n != uint64(len(texts)) {
			err = gpuerr.New(gpuerr.Invalid, "%s: has %d elements for %d tokens", key, n, len(texts))
		}
		return c, err
	}

	scores, err := each("tokenizer.ggml.scores", "of 32-bit floats", typeFloat32)
	if err != nil {
		return err
	}

	for i := range s.Pieces {
		if scores != nil {
			s.Pieces[i].Score = math.Float32frombits(scores.u32("tokenizer.ggml.scores"))
		}
	}

	types, err := each("tokenizer.ggml.token_type", "of 32-bit integers", typeInt32, typeUint32)
	if err != nil {
		return err
	}

	for i := range s.Pieces {
		if types == nil {
			s.Pieces[i].Kind = guess(s.Scheme, i, s.Pieces[i].Text)
			continue
		}
		t := types.u32("tokenizer.ggml.token_type")
		if t == 0 && types.err == nil {
			t = 1 // "undefined", in old files
		}
		if t < 1 || int64(t) > int64(len(kinds)) {
			return gpuerr.New(gpuerr.Invalid, "tokenizer.ggml.token_type: token %d is of type %d", i, t)
		}
		s.Pieces[i].Kind = kinds[t-1]
	}

	return nil
}

// guess returns the kind of a token in a file that does not state it.
func guess(scheme tokenizer.Scheme, i int, text []byte) tokenizer.Kind {
	switch {
	case scheme == tokenizer.ByteLevel:
		return tokenizer.Normal
	case i == 0:
		return tokenizer.Unknown
	case i < 3:
		return tokenizer.Control
	case len(text) == 6 && strings.HasPrefix(string(text), "<0x") && text[5] == '>':
		return tokenizer.Byte
	}
	return tokenizer.Normal
}

// special reads the numbers of the special tokens, and the rules.
func (h *Header) special(s *tokenizer.Spec) error {
	for _, id := range []struct {
		key string
		to  *int
	}{
		{"bos", &s.BOS}, {"eos", &s.EOS}, {"eot", &s.EOT}, {"unknown", &s.Unk},
	} {
		key := "tokenizer.ggml." + id.key + "_token_id"
		n, ok, err := h.uint(key, none)
		switch {
		case err != nil:
			return err
		case !ok:
		case n == none:
			*id.to = -1
		case n >= uint64(len(s.Pieces)):
			return gpuerr.New(gpuerr.Invalid, "%s: %d is not of the %d tokens", key, n, len(s.Pieces))
		default:
			*id.to = int(n)
		}

		// A token number that is only the format's default counts only if there is
		// such a token.
		if !ok && *id.to >= len(s.Pieces) {
			*id.to = -1
		}
	}

	for _, b := range []struct {
		key string
		to  *bool
	}{
		{"add_bos_token", &s.AddBOS}, {"add_eos_token", &s.AddEOS}, {"add_space_prefix", &s.SpacePrefix},
	} {
		var err error
		if *b.to, err = h.bool("tokenizer.ggml."+b.key, *b.to); err != nil {
			return err
		}
	}

	s.AddBOS = s.AddBOS && s.BOS >= 0
	s.AddEOS = s.AddEOS && s.EOS >= 0
	return nil
}
