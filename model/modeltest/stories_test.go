package modeltest_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/model/load"
	"capgpu/model/modeltest"
	"capgpu/model/tokenizer"
)

// TestStories: the reference model gives the reference texts and logits, from
// either file of the same weights.
func TestStories(t *testing.T) {
	for _, file := range []string{"stories260K.bin", "stories260Ktok512.gguf"} {
		t.Run(file, func(t *testing.T) { testStories(t, file) })
	}
}

func testStories(t *testing.T, file string) {
	f, err := load.Open(filepath.Join(modeltest.Stories(t), file))
	require.NoError(t, err)
	defer f.Close()

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

	for text, ids := range modeltest.StoriesPrompts(t) {
		require.Equal(t, ids, f.Tokenizer.Encode(text, tokenizer.Encode{}), text)
	}

	require.Len(t, r.Hidden(), f.Config.Dim)
}
