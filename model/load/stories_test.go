package load_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/model/load"
	"capgpu/model/modeltest"
)

// The real model generates the same text from both of its formats.
func TestStories(t *testing.T) {
	dir := modeltest.Stories(t)
	g, err := load.Open(filepath.Join(dir, "stories260Ktok512.gguf"))
	require.NoError(t, err)
	defer g.Close()

	c, err := load.Open(filepath.Join(dir, "stories260K.bin"))
	require.NoError(t, err)
	defer c.Close()

	require.Equal(t, "gguf", g.Format)
	require.Equal(t, "llama2c", c.Format)
	require.Equal(t, "stories260K", c.Name)
	require.Equal(t, 128, g.Config.Context, "the converter's own")
	require.Equal(t, 512, c.Config.Context)
	same := g.Config
	same.Context = 512
	require.Equal(t, same, c.Config)
	require.Equal(t, g.Weights, c.Weights)
	require.True(t, c.Weights.Tied())
	require.False(t, g.Weights.Tied(), "the GGUF has the classifier a second time")

	require.Equal(t, 512, g.Tokenizer.Vocab())
	for id := range int32(512) {
		require.Equal(t, string(g.Tokenizer.Piece(id)), string(c.Tokenizer.Piece(id)), "token %d", id)
	}

	require.Equal(t, g.Tokenizer.BOS(), c.Tokenizer.BOS())
}
