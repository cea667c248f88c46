// Package loadtest is what the tests of all loaders hold a loaded model to.
package loadtest

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/model/quant"
)

// Check says whether a model is whole: a shape that is possible, and every tensor of the
// shape and with the bytes that it asks for.
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
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	tensor("embed", &w.Embed, c.Vocab, c.Dim)
	tensor("output", &w.Output, c.Vocab, c.Dim)
	tensor("norm", &w.Norm, 1, c.Dim, model.F32)
	if len(w.Layers) != c.Layers {
		return fmt.Errorf("%d layers, not %d", len(w.Layers), c.Layers)
	}
	for i := range w.Layers {
		l := &w.Layers[i]
		tensor("attnNorm", &l.AttnNorm, 1, c.Dim, model.F32)
		tensor("ffnNorm", &l.FFNNorm, 1, c.Dim, model.F32)
		tensor("q", &l.Q, q, c.Dim)
		tensor("k", &l.K, kv, c.Dim)
		tensor("v", &l.V, kv, c.Dim)
		tensor("o", &l.O, c.Dim, q)
		tensor("gate", &l.Gate, c.Hidden, c.Dim)
		tensor("up", &l.Up, c.Hidden, c.Dim)
		tensor("down", &l.Down, c.Dim, c.Hidden)
	}
	if w.RopeFactors.Data != nil {
		tensor("ropeFactors", &w.RopeFactors, 1, c.HeadDim/2, model.F32)
	}
	if f.Tokenizer != nil && f.Tokenizer.Vocab() != c.Vocab {
		all = errors.Join(all, fmt.Errorf("%d tokens, not %d", f.Tokenizer.Vocab(), c.Vocab))
	}
	return all
}

// Load loads a file that may lie. It fails t unless the result is a whole model or
// gpuerr.Invalid with a text, and what was allocated is within the bounds: times the
// file's bytes, and a constant for what any load needs. It returns the error.
func Load(t testing.TB, bytes int, times uint64, load func() (*model.File, error)) error {
	t.Helper()
	const any = 2 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f, err := load()
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > any+times*uint64(bytes) {
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
