package safetensors

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/model/quant"
	"capgpu/model/tokenizer"
)

// The files of a folder.
const (
	ConfigFile          = "config.json"
	SingleFile          = "model.safetensors"
	IndexFile           = "model.safetensors.index.json"
	TokenizerFile       = "tokenizer.json"
	TokenizerConfigFile = "tokenizer_config.json"
	GenerationFile      = "generation_config.json"
	TemplateFile        = "chat_template.jinja"

	// MaxConfig bounds each file except the tensors' files and tokenizer.json, in
	// bytes.
	MaxConfig = 16 << 20
	maxShards = 1024
)

// Parts are the files of a folder; nil for a missing one.
type Parts struct {
	Config, Index, Tokenizer, TokenizerConfig, Generation, Template []byte
	// Shards are the mapped files of tensors, by name: SingleFile, or those of the
	// index.
	Shards map[string][]byte
}

// Shards are the names of an index's files of tensors, in order. Each must name a
// file of the same folder.
func Shards(index []byte) ([]string, error) {
	i, err := readIndex(index)
	if err != nil {
		return nil, err
	}

	seen := map[string]bool{}
	var names []string
	for tensor, name := range i {
		if seen[name] {
			continue
		}
		seen[name] = true
		plain := strings.HasSuffix(name, ".safetensors") && len(name) <= 255 && !strings.ContainsAny(name, "/\\\x00")
		if !plain {
			return nil, gpuerr.New(gpuerr.Invalid, "%s: weight_map: tensor %.40q is in %.80q, which is no file of the folder", IndexFile, tensor, name)
		}
		names = append(names, name)
	}

	if len(names) < 1 || len(names) > maxShards {
		return nil, gpuerr.New(gpuerr.Invalid, "%s: weight_map: %d files are not within 1 to %d", IndexFile, len(names), maxShards)
	}

	slices.Sort(names)
	return names, nil
}

func readIndex(b []byte) (map[string]string, error) {
	var i struct {
		Map map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(b, &i); err != nil {
		return nil, gpuerr.New(gpuerr.Invalid, "%s: %v", IndexFile, err)
	}
	return i.Map, nil
}

// Load is the model of a folder, without a name. Its tensors stay in the shards,
// except those that must be converted: norms in half precision. Errors are
// gpuerr.Invalid and name the file and the part.
func Load(p Parts) (*model.File, error) {
	in := func(file string, err error) error { return fmt.Errorf("%s: %w", file, err) }
	c, shape, by, err := readConfig(p.Config)
	if err != nil {
		return nil, in(ConfigFile, err)
	}

	all, err := tensors(&p)
	if err != nil {
		return nil, err
	}

	if c.images {
		all = textTensors(all)
	}

	f := &model.File{Format: "safetensors", Config: shape}
	if err := weights(f, all, c.tied(shape.Arch)); err != nil {
		return nil, err
	}

	if err := c.factors(f, by); err != nil {
		return nil, in(ConfigFile, err)
	}

	t, template, err := tokenizer.FromJSON(p.Tokenizer, p.TokenizerConfig)
	if err != nil {
		return nil, err
	}
	if t.Vocab() > shape.Vocab {
		return nil, in(TokenizerFile, gpuerr.New(gpuerr.Invalid, "%d tokens, and vocab_size is %d", t.Vocab(), shape.Vocab))
	}
	if len(p.Template) > 0 {
		template = string(p.Template)
	}

	ends := c.EOS
	if p.Generation != nil {
		var g struct {
			EOS tokens `json:"eos_token_id"`
		}
		if err := json.Unmarshal(p.Generation, &g); err != nil {
			return nil, in(GenerationFile, gpuerr.New(gpuerr.Invalid, "%v", err))
		}
		if g.EOS != nil {
			ends = g.EOS
		}
	}

	f.Template = template
	if f.Tokenizer, err = finish(t, ends, shape.Vocab); err != nil {
		return nil, in(TokenizerFile, err)
	}

	return f, nil
}

// finish adds information from other files: which tokens end a text, and how many
// there are in all, including those that no text has.
func finish(t *tokenizer.Tokenizer, ends []int, vocab int) (*tokenizer.Tokenizer, error) {
	s := t.Spec()
	for _, id := range ends {
		switch {
		case id < 0 || id >= vocab:
			return nil, gpuerr.New(gpuerr.Invalid, "eos_token_id: %d is not of the %d tokens", id, vocab)
		case s.EOS < 0:
			s.EOS = id
		case id != s.EOS && id != s.EOT && !slices.Contains(s.Ends, id):
			s.Ends = append(slices.Clip(s.Ends), id)
		}
	}

	s.Pieces = slices.Clone(s.Pieces)
	for len(s.Pieces) < vocab {
		s.Pieces = append(s.Pieces, tokenizer.Piece{Kind: tokenizer.Unused})
	}

	return tokenizer.New(s)
}

// tensors are the tensors of all shards.
func tensors(p *Parts) (map[string]*tensor, error) {
	names := []string{SingleFile}
	var index map[string]string
	if p.Index != nil {
		var err error
		if names, err = Shards(p.Index); err != nil {
			return nil, err
		}
		if index, err = readIndex(p.Index); err != nil {
			return nil, err
		}
	}

	all := map[string]*tensor{}
	for _, name := range names {
		data, ok := p.Shards[name]
		if !ok {
			return nil, gpuerr.New(gpuerr.Invalid, "%s: is missing", name)
		}

		some, err := parse(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}

		for key, t := range some {
			if all[key] != nil {
				return nil, gpuerr.New(gpuerr.Invalid, "%s: tensor %s: is in another file too", name, key)
			}
			if index != nil && index[key] != name {
				return nil, gpuerr.New(gpuerr.Invalid, "%s: tensor %s: is not there after %s", name, key, IndexFile)
			}
			all[key] = t
		}
	}

	for key, name := range index {
		if all[key] == nil {
			return nil, gpuerr.New(gpuerr.Invalid, "%s: weight_map: tensor %.80s is not in %s", IndexFile, key, name)
		}
	}

	return all, nil
}

// taking finds tensors and records which were used.
type taking struct {
	all  map[string]*tensor
	used map[string]bool
	err  error

	minusOne bool // norms are 1 more than the file says
}

// get is a tensor of the given shape; rows 0 is a vector.
func (g *taking) get(name string, rows, cols int) model.Tensor {
	if g.err != nil {
		return model.Tensor{}
	}

	fail := func(format string, args ...any) model.Tensor {
		g.err = gpuerr.New(gpuerr.Invalid, "tensor "+name+": "+format, args...)
		return model.Tensor{}
	}

	t := g.all[name]
	if t == nil {
		return fail("is missing")
	}

	typ, ok := types[t.typ]
	if !ok {
		return fail("type %.20q is not supported; F32, F16 and BF16 are", t.typ)
	}

	want := []uint64{uint64(rows), uint64(cols)}
	if rows == 0 {
		want = want[1:]
	}
	if !slices.Equal(t.shape, want) {
		return fail("shape %d, and the model's makes it %d", t.shape, want)
	}

	g.used[name] = true
	return model.Tensor{Type: typ, Rows: max(rows, 1), Cols: cols, Data: t.data}
}

func (g *taking) vector(name string, n int) model.Tensor {
	t := g.get(name, 0, n)
	if g.err != nil {
		return t
	}
	t, err := quant.Vector(&t)
	if err != nil {
		g.err = fmt.Errorf("tensor %s: %w", name, err)
	}
	return t
}

// norm is a vector of factors.
func (g *taking) norm(name string, n int) model.Tensor {
	t := g.vector(name, n)
	if g.err != nil || !g.minusOne {
		return t
	}
	t, err := plus(&t, 1)
	if err != nil {
		g.err = fmt.Errorf("tensor %s: %w", name, err)
	}
	return t
}

// plus adds a number to each element of a vector.
func plus(t *model.Tensor, by float32) (model.Tensor, error) {
	x, err := quant.Decode(t)
	if err != nil {
		return *t, err
	}
	for i := range x {
		x[i] += by
	}
	return quant.Encode(model.F32, 1, len(x), 0, x)
}

func weights(f *model.File, all map[string]*tensor, tied bool) error {
	c, w := &f.Config, &f.Weights
	// A layer has at least six tensors, so the allocation is in proportion to the files.
	if c.Layers > len(all)/6 {
		return gpuerr.New(gpuerr.Invalid, "%s: num_hidden_layers: %d layers, and there are %d tensors", ConfigFile, c.Layers, len(all))
	}

	g := &taking{all: all, used: map[string]bool{}, minusOne: c.Arch.Traits().MinusOne}
	// Writers of the format keep one name of tensors that share memory, either.
	table := "model.embed_tokens.weight"
	if tied && all[table] == nil && all["lm_head.weight"] != nil {
		table = "lm_head.weight"
	}
	w.Embed = g.get(table, c.Vocab, c.Dim)
	w.Norm = g.norm("model.norm.weight", c.Dim)
	if tied {
		w.Output = w.Embed
		g.used["lm_head.weight"] = true // some files have the table a second time
	} else {
		w.Output = g.get("lm_head.weight", c.Vocab, c.Dim)
	}

	w.Layers = make([]model.Layer, c.Layers)
	for i := range w.Layers {
		for _, s := range stacks(c, &w.Layers[i], i) {
			if p := s.Parts[0]; p.Norm {
				*p.Tensor = g.norm(s.Name, p.Cols)
			} else if s.Rows() == 0 {
				*p.Tensor = g.vector(s.Name, p.Cols)
			} else if t := g.get(s.Name, s.Rows(), p.Cols); g.err == nil {
				s.Split(t)
			}
		}
	}

	if g.err != nil {
		return g.err
	}

	for name := range all {
		// Old files have tables of frequencies, which are recomputed.
		if !g.used[name] && !strings.HasSuffix(name, ".rotary_emb.inv_freq") {
			return gpuerr.New(gpuerr.Invalid, "tensor %s: is not of a %s model as it is supported", name, c.Arch)
		}
	}

	return nil
}
