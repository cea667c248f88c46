package safetensors

import (
	"cmp"
	"slices"
	"unicode/utf8"

	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/model/tokenizer"
)

const space = "\u2581"

// splits are the expressions of the named patterns.
var splits = map[string]string{
	"llama-bpe": `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
}

type object = map[string]any

// tokenizerOf makes tokenizer.json and tokenizer_config.json of a model.
func tokenizerOf(f *model.File) (file, config object, err error) {
	s := f.Tokenizer.Spec()
	if s.SpaceFirst || s.SpaceOnce || s.NFC || s.AddEOS {
		return nil, nil, gpuerr.New(gpuerr.Invalid, "tokenizer: its rules for spaces, composition or the end are not written to this format")
	}

	vocab, added := object{}, []object{}
	m := object{"type": "BPE", "vocab": vocab, "byte_fallback": s.Scheme == tokenizer.SentencePiece, "ignore_merges": s.IgnoreMerges, "unk_token": nil}
	for i, p := range s.Pieces {
		text := string(p.Text)
		if text == "" {
			continue
		}
		if _, twice := vocab[text]; twice || !utf8.ValidString(text) {
			return nil, nil, gpuerr.New(gpuerr.Invalid, "tokenizer: token %d, %q, is there twice or is no UTF-8", i, text)
		}

		vocab[text] = i
		if p.Kind == tokenizer.Unknown {
			m["unk_token"] = text
		}

		if p.Kind == tokenizer.Unknown || p.Kind == tokenizer.Control || p.Kind == tokenizer.User {
			added = append(added, object{
				"id": i, "content": text, "special": p.Kind != tokenizer.User, "single_word": false,
				"lstrip": p.LStrip, "rstrip": p.RStrip, "normalized": p.Normalized,
			})
		}
	}

	file = object{"version": "1.0", "added_tokens": added, "model": m}
	if s.Scheme == tokenizer.SentencePiece {
		sentencePiece(&s, file, m)
	} else if err := byteLevel(&s, file, m); err != nil {
		return nil, nil, err
	}

	config = object{"add_bos_token": s.AddBOS, "add_eos_token": s.AddEOS, "tokenizer_class": "PreTrainedTokenizerFast"}
	if s.BOS >= 0 {
		bos := string(s.Pieces[s.BOS].Text)
		config["bos_token"] = bos
		if s.AddBOS {
			file["post_processor"] = object{
				"type":           "TemplateProcessing",
				"single":         []object{{"SpecialToken": object{"id": bos, "type_id": 0}}, {"Sequence": object{"id": "A", "type_id": 0}}},
				"pair":           []object{{"Sequence": object{"id": "A", "type_id": 0}}, {"Sequence": object{"id": "B", "type_id": 1}}},
				"special_tokens": object{bos: object{"id": bos, "ids": []int{s.BOS}, "tokens": []string{bos}}},
			}
		}
	}

	if s.EOS >= 0 {
		config["eos_token"] = string(s.Pieces[s.EOS].Text)
	}
	if f.Template != "" {
		config["chat_template"] = f.Template
	}

	return file, config, nil
}

func sentencePiece(s *tokenizer.Spec, file, m object) {
	normalizers := []object{{"type": "Replace", "pattern": object{"String": " "}, "content": space}}
	strip := []object{{"type": "Replace", "pattern": object{"String": space}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}}
	if s.SpacePrefix {
		normalizers = append([]object{{"type": "Prepend", "prepend": space}}, normalizers...)
		strip = append(strip, object{"type": "Strip", "content": " ", "start": 1, "stop": 0})
	}
	file["normalizer"] = object{"type": "Sequence", "normalizers": normalizers}
	file["decoder"] = object{"type": "Sequence", "decoders": strip}
	file["pre_tokenizer"] = nil
	m["fuse_unk"] = true
	m["merges"] = s.Merges
	if len(s.Merges) == 0 {
		m["merges"] = ranked(s)
	}
}

// ranked derives merges from scores: each way to combine two pieces into a third,
// the best third first.
func ranked(s *tokenizer.Spec) []string {
	known := map[string]int{}
	for i, p := range s.Pieces {
		if p.Kind == tokenizer.Normal {
			known[string(p.Text)] = i
		}
	}

	type way struct {
		to   int
		text string
	}

	ways := []way{}
	for i, p := range s.Pieces {
		if p.Kind != tokenizer.Normal {
			continue
		}
		for cut := 1; cut < len(p.Text); cut++ {
			left, right := string(p.Text[:cut]), string(p.Text[cut:])
			_, a := known[left]
			_, b := known[right]
			if a && b {
				ways = append(ways, way{i, left + " " + right})
			}
		}
	}

	slices.SortStableFunc(ways, func(a, b way) int { return cmp.Compare(s.Pieces[b.to].Score, s.Pieces[a.to].Score) })
	merges := make([]string, len(ways))
	for i, w := range ways {
		merges[i] = w.text
	}

	return merges
}

func byteLevel(s *tokenizer.Spec, file, m object) error {
	last := object{"type": "ByteLevel", "add_prefix_space": s.SpacePrefix, "trim_offsets": true, "use_regex": false}
	steps := []object{}
	switch expr := splits[s.Pattern]; {
	case s.Splits != nil:
		for _, e := range s.Splits {
			steps = append(steps, object{"type": "Split", "pattern": object{"Regex": e}, "behavior": "Isolated", "invert": false})
		}
	case s.Pattern == "" || s.Pattern == "gpt-2":
		last["use_regex"] = true
	case expr != "":
		steps = append(steps, object{"type": "Split", "pattern": object{"Regex": expr}, "behavior": "Isolated", "invert": false})
	default:
		return gpuerr.New(gpuerr.Invalid, "tokenizer: the pattern %.40q is not written to this format", s.Pattern)
	}

	file["pre_tokenizer"] = object{"type": "Sequence", "pretokenizers": append(steps, last)}
	file["normalizer"] = nil
	file["decoder"] = object{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}
	m["merges"] = s.Merges
	return nil
}
