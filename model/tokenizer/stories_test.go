package tokenizer_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/model/modeltest"
	"capgpu/model/tokenizer"
)

// stories is the vocabulary of the stories260K model.
func stories(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	bin, err := os.ReadFile(filepath.Join(modeltest.Stories(t), "tok512.bin"))
	require.NoError(t, err)
	tok, err := tokenizer.FromLlama2c(bin, 512)
	require.NoError(t, err)
	return tok
}

func TestStoriesTokens(t *testing.T) {
	tok := stories(t)
	prompts := modeltest.StoriesPrompts(t)
	require.Len(t, prompts, 5)
	for text, want := range prompts {
		require.Equal(t, want, tok.Encode(text, tokenizer.Encode{}), text)
		require.Equal(t, text, decode(tok, want))
	}
	require.Equal(t, []int32{1}, tok.Encode("", tokenizer.Encode{}))
	require.True(t, tok.IsEnd(2))
	require.False(t, tok.IsEnd(1))
	require.EqualValues(t, 1, tok.BOS())
}

// TestStoriesTexts: the reference texts come back from their tokens.
func TestStoriesTexts(t *testing.T) {
	tok := stories(t)
	for _, name := range []string{"t0.n64", "t0.n128", "t0.n256", "prompt1.t0.n128", "prompt2.t0.n128"} {
		text := modeltest.StoriesText(t, name)
		require.Equal(t, text, decode(tok, tok.Encode(text, tokenizer.Encode{})))
	}
}

// decode is the whole text of tokens, through a Decoder.
func decode(t *tokenizer.Tokenizer, ids []int32) string {
	d, text := t.Decoder(), ""
	for _, id := range ids {
		text += d.Add(id)
	}
	return text + d.Flush()
}
