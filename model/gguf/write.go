package gguf

import (
	"bufio"
	"bytes"
	"io"
	"math"
	"reflect"
	"slices"

	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/model/mapped"
	"capgpu/model/quant"
	"capgpu/model/tokenizer"
)

const alignment = 32

// Write stores a model in version 3. With a nil content it writes the tensors' own bytes. Queries and keys are put in the order of the
// format, and a stretch of the positions (Config.Scaling) becomes
// rope_freqs.weight. It returns gpuerr.Invalid for anything that the format cannot
// hold: tensors of I8, and rules of a tokenizer that have no key.
func Write(w io.Writer, f *model.File, content quant.Content) error {
	return WriteSplit([]io.Writer{w}, f, content)
}

// WriteSplit is Write to several files, with about as many tensors in each.
func WriteSplit(files []io.Writer, f *model.File, content quant.Content) error {
	if content == nil {
		content = quant.Own
	}
	if err := f.Config.Check(); err != nil {
		return err
	}

	factors, err := quant.Factors(f)
	if err != nil {
		return err
	}

	content = quant.Arranged(f, f.Config.Arch.Traits().GGUFRope, content)
	all, err := tensors(f, content)
	if err != nil {
		return err
	}
	if f.Config.LongAfter != 0 {
		all = append(all, named{shortFactors, &f.Weights.RopeFactors, content}, named{longFactors, &f.Weights.LongFactors, content})
	} else if factors != nil {
		t, err := quant.Encode(model.F32, 1, len(factors), 0, factors)
		if err != nil {
			return err
		}
		all = append(all, named{"rope_freqs.weight", &t, func(*model.Tensor) (model.Tensor, error) { return t, nil }})
	}

	for i, w := range files {
		var p printer
		if i == 0 {
			if err := p.metadata(f); err != nil {
				return err
			}
		}
		if len(files) > 1 {
			p.setUint("split.no", i)
			p.setUint("split.count", len(files))
			p.setUint("split.tensors.count", len(all))
		}
		part := all[len(all)*i/len(files) : len(all)*(i+1)/len(files)]
		if err := writeFile(w, &p, part); err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes metadata, and tensors.
func writeFile(w io.Writer, p *printer, all []named) error {
	var front printer
	front.WriteString(magic)
	front.u32(3)
	front.u64(uint64(len(all)))
	front.u64(p.entries)
	front.Write(p.Bytes())
	if err := front.places(all); err != nil {
		return err
	}

	out := bufio.NewWriterSize(w, 1<<20)
	front.Write(make([]byte, gap(uint64(front.Len()))))
	out.Write(front.Bytes())
	for _, t := range all {
		err := mapped.Guard(func() error {
			got, err := t.content.Fetch(t.name, t.Tensor)
			if err == nil {
				_, err = out.Write(got.Data)
			}
			return err
		})
		if err != nil {
			return err
		}
		out.Write(make([]byte, gap(uint64(t.Bytes()))))
	}

	return out.Flush()
}

// gap is the number of bytes that pad n to a multiple of the alignment.
func gap(n uint64) uint64 { return -n % alignment }

type named struct {
	name string
	*model.Tensor
	content quant.Content
}

// tensors are a model's tensors with their names in the format.
func tensors(f *model.File, content quant.Content) ([]named, error) {
	w := &f.Weights
	all := []named{{"token_embd.weight", &w.Embed, content}, {"output_norm.weight", &w.Norm, content}}
	if !w.Tied() {
		all = append(all, named{"output.weight", &w.Output, content})
	}

	for i := range w.Layers {
		for _, s := range stacks(&f.Config, &w.Layers[i], i) {
			t, c, err := quant.Stacked(&s, content)
			if err != nil {
				return nil, err
			}
			all = append(all, named{s.Name, t, c})
		}
	}

	return all, nil
}

// printer writes the front of a file.
type printer struct {
	bytes.Buffer
	entries uint64
}

func (p *printer) u32(v uint32) { p.Write(le.AppendUint32(nil, v)) }
func (p *printer) u64(v uint64) { p.Write(le.AppendUint64(nil, v)) }

func (p *printer) text(s string) {
	p.u64(uint64(len(s)))
	p.WriteString(s)
}

func (p *printer) key(name string, typ uint32) {
	p.entries++
	p.text(name)
	p.u32(typ)
}

func (p *printer) setText(key, s string) {
	p.key(key, typeString)
	p.text(s)
}

func (p *printer) setUint(key string, v int) {
	p.key(key, typeUint32)
	p.u32(uint32(v))
}

func (p *printer) setFloat(key string, v float32) {
	p.key(key, typeFloat32)
	p.u32(math.Float32bits(v))
}

func (p *printer) setBool(key string, v bool) {
	p.key(key, typeBool)
	b := byte(0)
	if v {
		b = 1
	}
	p.WriteByte(b)
}

func (p *printer) setArray(key string, of uint32, n int) {
	p.key(key, typeArray)
	p.u32(of)
	p.u64(uint64(n))
}

// places writes the types and places of the tensors.
func (p *printer) places(all []named) error {
	at := uint64(0)
	for _, t := range all {
		typ, ok := uint32(0), false
		for k, v := range elements {
			if v == t.Type {
				typ, ok = k, true
			}
		}

		per, _ := t.Type.Block()
		if !ok || t.Rows < 1 || t.Cols < 1 || t.Cols%per != 0 {
			return gpuerr.New(gpuerr.Invalid, "tensor %s: the format cannot hold %d rows of %d as %s", t.name, t.Rows, t.Cols, t.Type)
		}

		p.text(t.name)
		dims := []int{t.Cols, t.Rows}
		if t.Rows == 1 {
			dims = dims[:1]
		}

		p.u32(uint32(len(dims)))
		for _, d := range dims {
			p.u64(uint64(d))
		}

		p.u32(typ)
		p.u64(at)
		at += uint64(t.Bytes())
		at += gap(at)
	}

	return nil
}

// tokenizer writes a vocabulary, after checking that it would be read back the
// same.
func (p *printer) tokenizer(s tokenizer.Spec) error {
	t := printer{}
	t.vocabulary(&s)
	var whole printer
	whole.WriteString(magic)
	whole.u32(3)
	whole.u64(0)
	whole.u64(t.entries)
	whole.Write(t.Bytes())
	h, err := Parse(whole.Bytes())
	if err != nil {
		return err
	}

	back, err := h.Spec()
	if err != nil {
		return err
	}

	a, b := reflect.ValueOf(s), reflect.ValueOf(back)
	for i := range a.NumField() {
		x, y := a.Field(i), b.Field(i)
		empty := x.Kind() == reflect.Slice && x.Len() == 0 && y.Len() == 0 && a.Type().Field(i).Name != "Splits"
		if !empty && !reflect.DeepEqual(x.Interface(), y.Interface()) {
			return gpuerr.New(gpuerr.Invalid, "tokenizer: the format cannot hold its %s", a.Type().Field(i).Name)
		}
	}

	p.entries += t.entries
	p.Write(t.Bytes())
	return nil
}

func (p *printer) vocabulary(s *tokenizer.Spec) {
	const at = "tokenizer.ggml."
	if s.Scheme == tokenizer.SentencePiece {
		p.setText(at+"model", "llama")
	} else {
		p.setText(at+"model", "gpt2")
		p.setText(at+"pre", s.Pattern)
	}

	p.setArray(at+"tokens", typeString, len(s.Pieces))
	for _, piece := range s.Pieces {
		p.text(string(piece.Text))
	}

	p.setArray(at+"scores", typeFloat32, len(s.Pieces))
	for _, piece := range s.Pieces {
		p.u32(math.Float32bits(piece.Score))
	}

	p.setArray(at+"token_type", typeInt32, len(s.Pieces))
	for _, piece := range s.Pieces {
		p.u32(uint32(slices.Index(kinds[:], piece.Kind) + 1))
	}

	if s.Scheme == tokenizer.ByteLevel {
		p.setArray(at+"merges", typeString, len(s.Merges))
		for _, m := range s.Merges {
			p.text(m)
		}
	}

	for _, id := range []struct {
		key string
		id  int
	}{{"bos", s.BOS}, {"eos", s.EOS}, {"eot", s.EOT}, {"unknown", s.Unk}} {
		// A missing token is written as -1 if the format has a default for it, and
		// otherwise without a key.
		if id.id >= 0 || s.Scheme == tokenizer.SentencePiece && id.key != "eot" {
			p.setUint(at+id.key+"_token_id", id.id)
		}
	}

	p.setBool(at+"add_bos_token", s.AddBOS)
	p.setBool(at+"add_eos_token", s.AddEOS)
	p.setBool(at+"add_space_prefix", s.SpacePrefix)
}
