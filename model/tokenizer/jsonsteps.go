package tokenizer

import (
	"encoding/json"
	"fmt"
	"regexp"
)

// maxSteps bounds a sequence of normalizers, pre_tokenizers or post_processors.
const maxSteps = 32

// jsonStep is one of them; it has the members of all types, because each has few.
type jsonStep struct {
	Type string `json:"type"`

	Normalizers   []json.RawMessage `json:"normalizers"`   // Sequence
	Pretokenizers []json.RawMessage `json:"pretokenizers"` // Sequence
	Processors    []json.RawMessage `json:"processors"`    // Sequence

	Prepend string `json:"prepend"` // Prepend
	Pattern struct {
		String *string
		Regex  *string
	} `json:"pattern"` // Replace, Split
	Content  string `json:"content"`  // Replace
	Behavior string `json:"behavior"` // Split
	Invert   bool   `json:"invert"`   // Split

	AddPrefixSpace *bool   `json:"add_prefix_space"`  // ByteLevel, Metaspace
	UseRegex       *bool   `json:"use_regex"`         // ByteLevel
	Individual     bool    `json:"individual_digits"` // Digits
	Replacement    string  `json:"replacement"`       // Metaspace
	PrependScheme  *string `json:"prepend_scheme"`    // Metaspace
	Split          *bool   `json:"split"`             // Metaspace

	Single        []jsonTemplate          `json:"single"` // TemplateProcessing
	SpecialTokens map[string]jsonSpecials `json:"special_tokens"`
}

type jsonTemplate struct {
	SpecialToken *struct {
		ID string `json:"id"`
	}
	Sequence *struct {
		ID string `json:"id"`
	}
}

type jsonSpecials struct {
	IDs []int `json:"ids"`
}

// steps reads a member that is null, one step, or a Sequence of them.
func steps(raw json.RawMessage) ([]jsonStep, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}

	var one jsonStep
	if err := json.Unmarshal(raw, &one); err != nil {
		return nil, err
	}
	if one.Type != "Sequence" {
		return []jsonStep{one}, nil
	}

	var out []jsonStep
	for _, list := range [][]json.RawMessage{one.Normalizers, one.Pretokenizers, one.Processors} {
		for _, raw := range list {
			var s jsonStep
			if err := json.Unmarshal(raw, &s); err != nil {
				return nil, err
			}
			if s.Type == "Sequence" {
				return nil, fmt.Errorf("a Sequence in a Sequence is not supported")
			}
			if out = append(out, s); len(out) > maxSteps {
				return nil, fmt.Errorf("a Sequence of more than %d", maxSteps)
			}
		}
	}

	return out, nil
}

func (r *jsonReader) normalizer(f *jsonFile) error {
	list, err := steps(f.Normalizer)
	for _, s := range list {
		switch {
		case s.Type == "NFC":
			r.s.NFC = true
		case s.Type == "Prepend" && s.Prepend == space:
			r.prepends, r.s.SpacePrefix = true, true
		case s.Type == "Replace" && s.Pattern.String != nil && *s.Pattern.String == " " && s.Content == space:
			r.replaces = true
		case s.Type == "Prepend":
			return fmt.Errorf("the Prepend of %.40q is not supported", s.Prepend)
		case s.Type == "Replace":
			return fmt.Errorf("this Replace is not supported: only that of a space by %s is", space)
		default:
			return fmt.Errorf("%.40q is not supported", s.Type)
		}
	}

	return err
}

func (r *jsonReader) preTokenizer(f *jsonFile) error {
	list, err := steps(f.PreTokenizer)
	r.s.Splits = []string{}
	for i, s := range list {
		if r.byteLevel || r.metaspace {
			return fmt.Errorf("%.40q after %s is not supported", s.Type, list[i-1].Type)
		}
		switch s.Type {
		case "Split":
			if err := r.split(&s); err != nil {
				return err
			}

		case "Digits":
			expr := `\p{N}+`
			if s.Individual {
				expr = `\p{N}`
			}
			r.s.Splits = append(r.s.Splits, expr)

		case "ByteLevel":
			if r.s.SpacePrefix = s.AddPrefixSpace == nil || *s.AddPrefixSpace; r.s.SpacePrefix && i > 0 {
				return fmt.Errorf("ByteLevel's add_prefix_space after %s is not supported", list[i-1].Type)
			}
			r.byteLevel = true
			if s.UseRegex == nil || *s.UseRegex {
				r.s.Splits = append(r.s.Splits, gpt2Split)
			}

		case "Metaspace":
			if err := r.takeMetaspace(&s); err != nil {
				return err
			}

		default:
			return fmt.Errorf("%.40q is not supported", s.Type)
		}
	}

	if err == nil && !r.byteLevel && len(r.s.Splits) > 0 {
		return fmt.Errorf("splits without ByteLevel are not supported")
	}

	return err
}

func (r *jsonReader) split(s *jsonStep) error {
	var expr string
	switch {
	case s.Pattern.Regex != nil:
		expr = *s.Pattern.Regex
	case s.Pattern.String == nil || *s.Pattern.String == "":
		return fmt.Errorf("a Split without a pattern")
	case *s.Pattern.String == " " && r.replaces:
		return nil // there is none left
	default:
		expr = regexp.QuoteMeta(*s.Pattern.String)
	}

	isolated := s.Behavior == "Isolated" || s.Behavior == "Removed" && s.Invert && covers(expr)
	if !isolated {
		return fmt.Errorf("a Split that is %.40q is not supported", s.Behavior)
	}

	r.s.Splits = append(r.s.Splits, expr)
	return nil
}

func (r *jsonReader) takeMetaspace(s *jsonStep) error {
	r.metaspace = true
	if s.Replacement != space {
		return fmt.Errorf("the Metaspace of %.40q is not supported", s.Replacement)
	}
	if s.Split == nil || *s.Split {
		return fmt.Errorf("a Metaspace that splits is not supported")
	}

	scheme := "always"
	if s.PrependScheme != nil {
		scheme = *s.PrependScheme
	} else if s.AddPrefixSpace != nil && !*s.AddPrefixSpace {
		scheme = "never"
	}

	switch scheme {
	case "always", "first":
		r.s.SpacePrefix, r.s.SpaceOnce, r.s.SpaceFirst = true, true, scheme == "first"
	case "never":
	default:
		return fmt.Errorf("the Metaspace's prepend_scheme %.40q is not supported", scheme)
	}

	return nil
}

// postProcessor reads the tokens that begin and end a text.
func (r *jsonReader) postProcessor(f *jsonFile) error {
	list, err := steps(f.PostProcessor)
	for _, s := range list {
		switch s.Type {
		case "ByteLevel": // of places in the text only
		case "TemplateProcessing":
			if err := r.template(&s); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%.40q is not supported", s.Type)
		}
	}
	return err
}

func (r *jsonReader) template(s *jsonStep) error {
	text := false
	for _, part := range s.Single {
		switch {
		case part.Sequence != nil && !text:
			text = true

		case part.SpecialToken != nil:
			ids := s.SpecialTokens[part.SpecialToken.ID].IDs
			if len(ids) != 1 || ids[0] < 0 || ids[0] >= len(r.s.Pieces) {
				return fmt.Errorf("TemplateProcessing: %.40q is not one token of the vocabulary", part.SpecialToken.ID)
			}
			id, adds := &r.s.BOS, &r.s.AddBOS
			if text {
				id, adds = &r.s.EOS, &r.s.AddEOS
			}
			if *adds {
				return fmt.Errorf("TemplateProcessing with two tokens on one side is not supported")
			}
			*id, *adds = ids[0], true

		default:
			return fmt.Errorf("TemplateProcessing: this single is not supported")
		}
	}

	if !text {
		return fmt.Errorf("TemplateProcessing without the text")
	}

	return nil
}

// jsonConfig is a tokenizer_config.json.
type jsonConfig struct {
	BOS          jsonToken     `json:"bos_token"`
	EOS          jsonToken     `json:"eos_token"`
	AddBOS       *bool         `json:"add_bos_token"`
	AddEOS       *bool         `json:"add_eos_token"`
	ChatTemplate jsonTemplates `json:"chat_template"`
}

// jsonToken is null, a text, or an object with one.
type jsonToken string

func (t *jsonToken) UnmarshalJSON(b []byte) error {
	var o struct {
		Content string `json:"content"`
	}
	if err := json.Unmarshal(b, (*string)(t)); err == nil {
		return nil
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return err
	}
	*t = jsonToken(o.Content)
	return nil
}

// jsonTemplates is null, a text, or a list of named texts; "default" is taken, or
// the first.
type jsonTemplates string

func (t *jsonTemplates) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, (*string)(t)); err == nil {
		return nil
	}
	var list []struct{ Name, Template string }
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	for i, l := range list {
		if i == 0 || l.Name == "default" {
			*t = jsonTemplates(l.Template)
		}
	}
	return nil
}

// config takes the special tokens by their text.
func (r *jsonReader) config(c *jsonConfig) error {
	for _, token := range []struct {
		name string
		text jsonToken
		id   *int
		add  *bool
		adds *bool
	}{{"bos_token", c.BOS, &r.s.BOS, c.AddBOS, &r.s.AddBOS}, {"eos_token", c.EOS, &r.s.EOS, c.AddEOS, &r.s.AddEOS}} {
		if token.text != "" {
			found := -1
			for i, p := range r.s.Pieces {
				if string(p.Text) == string(token.text) && p.Kind != Unused {
					found = i
				}
			}
			if found < 0 {
				return fmt.Errorf("%s: %.40q is not of the vocabulary", token.name, string(token.text))
			}
			*token.id = found
		}
		if token.add != nil {
			*token.adds = *token.add && *token.id >= 0
		}
	}
	return nil
}
