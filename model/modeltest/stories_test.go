package modeltest_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/model"
	"capgpu/model/modeltest"
	"capgpu/model/tokenizer"
)

// TestStories: the reference model says what the reference texts and logits say.
func TestStories(t *testing.T) {
	f := stories(t)
	want := modeltest.StoriesLogits(t)
	r, err := modeltest.New(f)
	require.NoError(t, err)
	tokens, logits := r.Greedy([]int32{1}, 256)
	for i, row := range want {
		diff, at := modeltest.MaxDiff(logits[i], row)
		require.Less(t, diff, 1e-3, "step %d, token %d", i, at)
	}
	for name, steps := range map[string]int{"t0.n64": 64, "t0.n128": 128, "t0.n256": 256} {
		require.Equal(t, modeltest.StoriesText(t, name), modeltest.Text(f.Tokenizer, tokens[:steps]...)+"\n", name)
	}
	for name, prompt := range map[string]string{"prompt1.t0.n128": "Once upon a time", "prompt2.t0.n128": "The dog"} {
		tokens, _ := r.Greedy(f.Tokenizer.Encode(prompt, tokenizer.Encode{}), 128)
		require.Equal(t, modeltest.StoriesText(t, name), modeltest.Text(f.Tokenizer, tokens...)+"\n", name)
	}
	require.Len(t, r.Hidden(), 64)
}

// stories reads the .bin of llama2.c, version 0, without the loader.
func stories(t *testing.T) *model.File {
	t.Helper()
	dir := modeltest.Stories(t)
	b, err := os.ReadFile(filepath.Join(dir, "stories260K.bin"))
	require.NoError(t, err)
	header := make([]int, 7)
	for i := range header {
		header[i] = int(int32(binary.LittleEndian.Uint32(b[4*i:])))
	}
	b = b[28:]
	c := model.Config{
		Dim: header[0], Hidden: header[1], Layers: header[2], Heads: header[3], KVHeads: header[4], HeadDim: header[0] / header[3],
		Vocab: int(math.Abs(float64(header[5]))), Context: header[6], NormEps: 1e-5, RopeBase: 10000, Rope: model.RopeAdjacent,
	}
	take := func(rows, cols int) model.Tensor {
		data := b[:4*rows*cols]
		b = b[4*rows*cols:]
		return model.Tensor{Type: model.F32, Rows: rows, Cols: cols, Data: data}
	}
	w := model.Weights{Embed: take(c.Vocab, c.Dim), Layers: make([]model.Layer, c.Layers)}
	for _, part := range []struct {
		of         func(l *model.Layer) *model.Tensor
		rows, cols int
	}{
		{func(l *model.Layer) *model.Tensor { return &l.AttnNorm }, 1, c.Dim},
		{func(l *model.Layer) *model.Tensor { return &l.Q }, c.Heads * c.HeadDim, c.Dim},
		{func(l *model.Layer) *model.Tensor { return &l.K }, c.KVHeads * c.HeadDim, c.Dim},
		{func(l *model.Layer) *model.Tensor { return &l.V }, c.KVHeads * c.HeadDim, c.Dim},
		{func(l *model.Layer) *model.Tensor { return &l.O }, c.Dim, c.Heads * c.HeadDim},
		{func(l *model.Layer) *model.Tensor { return &l.FFNNorm }, 1, c.Dim},
		{func(l *model.Layer) *model.Tensor { return &l.Gate }, c.Hidden, c.Dim},
		{func(l *model.Layer) *model.Tensor { return &l.Down }, c.Dim, c.Hidden},
		{func(l *model.Layer) *model.Tensor { return &l.Up }, c.Hidden, c.Dim},
	} {
		for i := range w.Layers {
			*part.of(&w.Layers[i]) = take(part.rows, part.cols)
		}
	}
	w.Norm = take(1, c.Dim)
	take(c.Context, c.HeadDim) // tables of the turns, which nobody reads any more
	w.Output = w.Embed
	if header[5] < 0 {
		w.Output = take(c.Vocab, c.Dim)
	}
	require.Empty(t, b)
	bin, err := os.ReadFile(filepath.Join(dir, "tok512.bin"))
	require.NoError(t, err)
	tok, err := tokenizer.FromLlama2c(bin, c.Vocab)
	require.NoError(t, err)
	return &model.File{Name: "stories260K", Format: "llama2c", Config: c, Weights: w, Tokenizer: tok}
}
