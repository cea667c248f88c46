package llama

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/control/server/servertest"
	"capgpu/gpu/backend/mock"
	"capgpu/model"
	"capgpu/model/modeltest"
	"capgpu/model/tokenizer"
)

// engines are the two ways in which the mock device runs programs.
var engines = map[string]mock.Options{"native": {}, "lane": {LaneOnly: true}}

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// open is a session of a service of its own.
func open(t testing.TB, o mock.Options) *client.Session {
	t.Helper()
	return servertest.Start(t, servertest.Options{Mock: o}).Open(t)
}

// load loads a model that is closed with the test.
func load(t testing.TB, s *client.Session, f *model.File, o Options) *Model {
	t.Helper()
	m, err := Load(testContext(t), s, f, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close(context.Background())) })
	return m
}

func newSequence(t testing.TB, m *Model, positions int) *Sequence {
	t.Helper()
	q, err := m.NewSequence()
	require.NoError(t, err)
	require.NoError(t, q.Reserve(positions))
	return q
}

// stories reads the real model: 7 numbers, then the tensors, one kind after another.
func stories(t testing.TB) (*model.File, *tokenizer.Tokenizer) {
	t.Helper()
	dir := modeltest.Stories(t)
	bin, err := os.ReadFile(filepath.Join(dir, "stories260K.bin"))
	require.NoError(t, err)
	n := func(i int) int { return int(int32(binary.LittleEndian.Uint32(bin[4*i:]))) }
	c := model.Config{
		Dim: n(0), Hidden: n(1), Layers: n(2), Heads: n(3), KVHeads: n(4), Vocab: n(5), Context: n(6),
		HeadDim: n(0) / n(3), NormEps: 1e-5, RopeBase: 10000,
	}
	rest := bin[28:]
	take := func(rows, cols int) model.Tensor {
		x := model.Tensor{Rows: rows, Cols: cols, Data: rest[:4*rows*cols]}
		rest = rest[4*rows*cols:]
		return x
	}
	w := model.Weights{Layers: make([]model.Layer, c.Layers)}
	each := func(rows, cols int, at func(*model.Layer) *model.Tensor) {
		for i := range w.Layers {
			*at(&w.Layers[i]) = take(rows, cols)
		}
	}
	kv := c.KVHeads * c.HeadDim
	w.Embed = take(c.Vocab, c.Dim)
	each(1, c.Dim, func(l *model.Layer) *model.Tensor { return &l.AttnNorm })
	each(c.Dim, c.Dim, func(l *model.Layer) *model.Tensor { return &l.Q })
	each(kv, c.Dim, func(l *model.Layer) *model.Tensor { return &l.K })
	each(kv, c.Dim, func(l *model.Layer) *model.Tensor { return &l.V })
	each(c.Dim, c.Dim, func(l *model.Layer) *model.Tensor { return &l.O })
	each(1, c.Dim, func(l *model.Layer) *model.Tensor { return &l.FFNNorm })
	each(c.Hidden, c.Dim, func(l *model.Layer) *model.Tensor { return &l.Gate })
	each(c.Dim, c.Hidden, func(l *model.Layer) *model.Tensor { return &l.Down })
	each(c.Hidden, c.Dim, func(l *model.Layer) *model.Tensor { return &l.Up })
	w.Norm = take(1, c.Dim)
	w.Output = w.Embed
	vocabulary, err := os.ReadFile(filepath.Join(dir, "tok512.bin"))
	require.NoError(t, err)
	text, err := tokenizer.FromLlama2c(vocabulary, c.Vocab)
	require.NoError(t, err)
	return &model.File{Name: "stories260K", Format: "llama2c", Config: c, Weights: w}, text
}

// argmax is the first of the largest.
func argmax(x []float32) int32 {
	best, at := float32(math.Inf(-1)), -1
	for i, v := range x {
		if v > best {
			best, at = v, i
		}
	}
	return int32(at)
}
