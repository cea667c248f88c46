package qemu

import (
	"flag"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/model/modeltest"
	"capgpu/model/tokenizer"
)

var update = flag.Bool("update", false, "write what the made-up model says")

// The text of the made-up model is that of an independent implementation in float64, and
// no rounding could have made it another.
func TestMadeUpText(t *testing.T) {
	made, err := madeUp()
	require.NoError(t, err)
	f, err := made.File()
	require.NoError(t, err)
	reference, err := modeltest.New(f)
	require.NoError(t, err)
	prompt := f.Tokenizer.Encode(guestPrompt, tokenizer.Encode{})
	tokens, logits := reference.Greedy(prompt, len(prompt)-1+guestTokens)
	answer := tokens[len(prompt)-1:]
	require.Len(t, answer, guestTokens)
	for i, row := range logits[len(logits)-guestTokens:] {
		sorted := slices.Sorted(slices.Values(row))
		gap := sorted[len(sorted)-1] - sorted[len(sorted)-2]
		require.Greater(t, gap, 2e-3, "token %d is nearly another", i)
		require.False(t, f.Tokenizer.IsEnd(answer[i]), "token %d ends the text", i)
	}
	decoder := f.Tokenizer.Decoder(prompt...)
	text := ""
	for _, token := range answer {
		text += decoder.Add(token)
	}
	text += decoder.Flush() + "\n"
	if *update {
		require.NoError(t, os.WriteFile("testdata/made-up.txt", []byte(text), 0o644))
		return
	}
	require.Equal(t, string(madeUpText), text, "if that is meant, run `go test ./qemu -run MadeUp -update`")
	require.Greater(t, len(slices.Compact(slices.Sorted(slices.Values(answer)))), guestTokens/4, "it says the same again and again")
}
