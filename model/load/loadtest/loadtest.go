// Package loadtest checks loaded models, for the tests of all loaders.
package loadtest

import (
	"errors"
	"fmt"
	"runtime/metrics"
	"testing"

	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/model/quant"
	"capgpu/model/tokenizer"
)

// Check reports whether a model is complete: a possible shape, and every tensor
// with the matching shape and number of bytes.
func Check(f *model.File) error {
	if err := f.Config.Check(); err != nil {
		return err
	}

	c, w := &f.Config, &f.Weights
	var all error
	tensor := func(name string, t *model.Tensor, rows, cols int, types ...model.Type) {
		err := quant.Check(t)
		if err == nil && (t.Rows != rows || t.Cols != cols) {
			err = fmt.Errorf("%d by %d, not %d by %d", t.Rows, t.Cols, rows, cols)
		}
		if err == nil && len(types) > 0 && t.Type != types[0] {
			err = fmt.Errorf("is %s", t.Type)
		}
		if err != nil {
			all = errors.Join(all, fmt.Errorf("%s: %w", name, err))
		}
	}

	tensor("embed", &w.Embed, c.Vocab, c.Dim)
	tensor("output", &w.Output, c.Vocab, c.Dim)
	tensor("norm", &w.Norm, 1, c.Dim, model.F32)
	if len(w.Layers) != c.Layers {
		return fmt.Errorf("%d layers, not %d", len(w.Layers), c.Layers)
	}

	for i := range w.Layers {
		for _, p := range c.Parts(&w.Layers[i]) {
			if p.Rows == 0 {
				tensor(p.Name, p.Tensor, 1, p.Cols, model.F32)
			} else {
				tensor(p.Name, p.Tensor, p.Rows, p.Cols)
			}
		}
	}

	if w.RopeFactors.Data != nil {
		tensor("ropeFactors", &w.RopeFactors, 1, c.TurnedDim()/2, model.F32)
	}
	if c.LongAfter != 0 {
		tensor("longFactors", &w.LongFactors, 1, c.TurnedDim()/2, model.F32)
	}
	if f.Tokenizer != nil && f.Tokenizer.Vocab() != c.Vocab {
		all = errors.Join(all, fmt.Errorf("%d tokens, not %d", f.Tokenizer.Vocab(), c.Vocab))
	}

	return all
}

// Load loads a file that may lie. It fails t unless the result is a complete model
// or gpuerr.Invalid with a text, and unless the allocation is within times the
// file's bytes plus a constant. It returns the error.
func Load(t testing.TB, bytes int, times uint64, load func() (*model.File, error)) error {
	t.Helper()
	const any = 2 << 20
	before := allocated()
	f, err := load()
	if n := allocated() - before; n > any+times*uint64(bytes) {
		t.Fatalf("%d bytes were allocated for a file of %d: %v", n, bytes, err)
	}

	if err == nil {
		if err := Check(f); err != nil {
			t.Fatalf("a model that is not whole: %v", err)
		}
		return nil
	}

	if !errors.Is(err, gpuerr.Invalid) || len(err.Error()) < len("E_INVALID: x") {
		t.Fatalf("the error is %v", err)
	}

	return err
}

// allocated is the total of allocated bytes, except small objects that no garbage
// collection has counted yet.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// Tiny is a model of the smallest shape, with a vocabulary of four tokens: a seed
// for fuzzing. All its tensors have one type; I8 has groups of 2.
func Tiny(t testing.TB, typ model.Type) *model.File { return TinyOf(t, model.Llama, typ) }

// TinyOf is Tiny of a family.
func TinyOf(t testing.TB, arch model.Arch, typ model.Type) *model.File {
	t.Helper()
	tok, err := tokenizer.New(tokenizer.Spec{
		Scheme: tokenizer.SentencePiece, BOS: 1, EOS: 2, EOT: -1, AddBOS: true, SpacePrefix: true,
		Pieces: []tokenizer.Piece{
			{Text: []byte("<unk>"), Kind: tokenizer.Unknown}, {Text: []byte("<s>"), Kind: tokenizer.Control},
			{Text: []byte("</s>"), Kind: tokenizer.Control}, {Text: []byte("a"), Score: -1},
		},
	})
	if err != nil {
		t.Fatal(err)
	}

	f := &model.File{Name: "tiny", Tokenizer: tok, Config: model.Config{
		Arch: arch, Rope: arch.Traits().GGUFRope,
		Dim: 4, Hidden: 4, Layers: 1, Heads: 1, KVHeads: 1, HeadDim: 4, Vocab: 4, Context: 4, NormEps: 1e-5, RopeBase: 10000,
	}}

	group := 0
	if typ == model.I8 {
		group = 2
	}

	tensor := func(typ model.Type, rows, group int) model.Tensor {
		x := make([]float32, rows*4)
		for i := range x {
			x[i] = float32(i%7) - 3
		}
		m, err := quant.Encode(typ, rows, 4, group, x)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}

	matrix := func() model.Tensor { return tensor(typ, 4, group) }
	vector := func() model.Tensor { return tensor(model.F32, 1, 0) }
	f.Weights = model.Weights{Embed: matrix(), Norm: vector(), Layers: []model.Layer{{
		AttnNorm: vector(), FFNNorm: vector(), Q: matrix(), K: matrix(), V: matrix(), O: matrix(),
		Gate: matrix(), Up: matrix(), Down: matrix(),
	}}}

	f.Weights.Output = f.Weights.Embed
	c, l, traits := &f.Config, &f.Weights.Layers[0], arch.Traits()
	switch arch {
	case model.Gemma2:
		c.Window, c.GlobalEvery, c.ScoreCap, c.LogitCap = 2, 2, 50, 30
	case model.Gemma3:
		c.Window, c.GlobalEvery, c.LocalRopeBase = 2, 6, 10000
	}
	if traits.Biases {
		l.QBias, l.KBias, l.VBias = vector(), vector(), vector()
	}
	if traits.HeadNorms {
		l.QNorm, l.KNorm = vector(), vector()
	}
	if traits.PostNorms {
		l.AttnAfter, l.FFNAfter = vector(), vector()
	}
	return f
}
