package llama2c

import (
	"bufio"
	"bytes"
	"io"
	"math"

	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/model/mapped"
	"capgpu/model/quant"
	"capgpu/model/tokenizer"
)

// Write stores a model as a checkpoint: of version 0 or 1 if its matrices are F32,
// of version 2 if they are I8 of one group size. With a nil content it writes the
// tensors' own bytes. Queries and keys are put in the order of the format. It
// returns gpuerr.Invalid for anything that the format cannot hold.
func Write(w io.Writer, f *model.File, version int, content quant.Content) error {
	if content == nil {
		content = quant.Own
	}

	c := &f.Config
	h := &header{version: version, tied: f.Weights.Tied(), shape: [7]int32{
		int32(c.Dim), int32(c.Hidden), int32(c.Layers), int32(c.Heads), int32(c.KVHeads), int32(c.Vocab), int32(c.Context),
	}}

	if err := writable(f, h); err != nil {
		return err
	}

	content = quant.Arranged(f, model.RopeAdjacent, content)
	out := bufio.NewWriterSize(w, 1<<20)
	out.Write(h.append(nil))
	for _, p := range parts(f, h) {
		if p.to == nil {
			writeAngles(out, c)
			continue
		}

		err := mapped.Guard(func() error {
			t, err := content.Fetch(p.name, p.to)
			if err == nil {
				_, err = out.Write(t.Data)
			}
			if err == nil {
				_, err = out.Write(t.Scales)
			}
			return err
		})
		if err != nil {
			return err
		}
	}

	return out.Flush()
}

// writable checks that the format can hold the model, and finds the group.
func writable(f *model.File, h *header) error {
	c, w := &f.Config, &f.Weights
	if h.version < 0 || h.version > 2 {
		return gpuerr.New(gpuerr.Invalid, "version: %d is not 0, 1 or 2", h.version)
	}
	if err := c.Check(); err != nil {
		return err
	}

	same, err := shapeOf(h)
	if err != nil {
		return err
	}

	same.Rope = c.Rope
	if same != *c || w.RopeFactors.Data != nil {
		return gpuerr.New(gpuerr.Invalid, "config: the format can tell %+v only, and the model is %+v, or its positions are stretched", same, *c)
	}

	want := model.F32
	if h.version == 2 {
		want, h.group = model.I8, w.Embed.Group
	}

	for _, t := range quant.Matrices(w) {
		if t.Type != want || t.Group != h.group {
			return gpuerr.New(gpuerr.Invalid, "tensors: one of %d rows is %s in groups of %d, and all are to be %s in groups of %d", t.Rows, t.Type, t.Group, want, h.group)
		}
	}

	return checkGroup(c, h)
}

// append writes the front of a file.
func (h *header) append(b []byte) []byte {
	if h.version > 0 {
		b = le.AppendUint32(b, magic)
		b = le.AppendUint32(b, uint32(h.version))
	}

	for i, v := range h.shape {
		if h.version == 0 && i == 5 && !h.tied {
			v = -v
		}
		b = le.AppendUint32(b, uint32(v))
	}

	if h.version == 0 {
		return b
	}

	tied := byte(0)
	if h.tied {
		tied = 1
	}

	b = append(b, tied)
	if h.version == 2 {
		b = le.AppendUint32(b, uint32(h.group))
	}

	return append(b, make([]byte, headerBytes-len(b))...)
}

// writeAngles writes the tables of version 0, cosines and sines, for readers that
// use them.
func writeAngles(out *bufio.Writer, c *model.Config) {
	for _, of := range []func(float64) float64{math.Cos, math.Sin} {
		for pos := range c.Context {
			for i := range c.HeadDim / 2 {
				angle := float64(pos) * math.Pow(ropeBase, -2*float64(i)/float64(c.HeadDim))
				out.Write(le.AppendUint32(nil, math.Float32bits(float32(of(angle)))))
			}
		}
	}
}

// WriteTokenizer stores a vocabulary as tokenizer.bin. It must be SentencePiece's, with
// the special tokens and bytes where llama2.c has them.
func WriteTokenizer(w io.Writer, s tokenizer.Spec) error {
	if s.Scheme != tokenizer.SentencePiece || len(s.Merges) != 0 {
		return gpuerr.New(gpuerr.Invalid, "tokenizer: the format holds SentencePiece's scores only")
	}

	texts := make([][]byte, len(s.Pieces))
	longest := 0
	for i, p := range s.Pieces {
		texts[i] = bytes.ReplaceAll(p.Text, []byte("\u2581"), []byte(" "))
		if i == 1 || i == 2 {
			texts[i] = []byte("\n" + string(p.Text) + "\n") // as export.py writes them
		}
		longest = max(longest, len(texts[i]))
	}

	b := le.AppendUint32(nil, uint32(longest))
	for i, text := range texts {
		b = le.AppendUint32(b, math.Float32bits(s.Pieces[i].Score))
		b = le.AppendUint32(b, uint32(len(text)))
		b = append(b, text...)
	}

	// The file must read back as the vocabulary that was written.
	back, err := tokenizer.FromLlama2c(b, len(texts))
	if err != nil {
		return err
	}

	got := back.Spec()
	for i, p := range s.Pieces {
		if q := got.Pieces[i]; !bytes.Equal(p.Text, q.Text) || p.Kind != q.Kind || p.Score != q.Score {
			return gpuerr.New(gpuerr.Invalid, "tokenizer: the format cannot hold token %d, %q", i, p.Text)
		}
	}

	if got.BOS != s.BOS || got.EOS != s.EOS || got.AddBOS != s.AddBOS || got.SpacePrefix != s.SpacePrefix || s.EOT >= 0 {
		return gpuerr.New(gpuerr.Invalid, "tokenizer: the format has its own beginning and end")
	}

	_, err = w.Write(b)
	return err
}
