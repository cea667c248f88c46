package llama

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/model/modeltest"
	"capgpu/model/tokenizer"
)

// text is what the tokens say after a prompt.
func text(tok *tokenizer.Tokenizer, prompt, tokens []int32) string {
	d := tok.Decoder()
	s := ""
	for _, id := range append(prompt[1:len(prompt):len(prompt)], tokens...) {
		s += d.Add(id)
	}
	return s + d.Flush()
}

// The real model says what the reference says, token by token and ahead, on both
// engines; and its logits are those of the reference.
func TestStories(t *testing.T) {
	f, tok := stories(t)
	for name, engine := range engines {
		t.Run(name, func(t *testing.T) {
			m := load(t, open(t, engine), f, Options{Sequences: 2})
			ctx := testContext(t)
			q := newSequence(t, m, f.Config.Context)
			var greedy []int32
			require.NoError(t, m.Greedy(ctx, q, tok.BOS(), 0, 256, func(id int32) bool {
				greedy = append(greedy, id)
				return true
			}))
			require.Equal(t, 256, q.Written())
			bos := []int32{tok.BOS()}
			for n, name := range map[int]string{64: "t0.n64", 128: "t0.n128", 256: "t0.n256"} {
				// The program that made the reference ends its line.
				require.Equal(t, modeltest.StoriesText(t, name), text(tok, bos, greedy[:n])+"\n")
			}

			token := tok.BOS()
			for i, want := range modeltest.StoriesLogits(t) {
				require.NoError(t, m.Step(ctx, []Row{{q, i, token, true}}))
				logits := m.Logits(0)
				for k := range want {
					if math.Abs(float64(want[k]-logits[k])) > 1e-3 {
						t.Fatalf("position %d, token %d: %g, not %g", i, k, logits[k], want[k])
					}
				}
				token = argmax(logits)
				require.Equal(t, greedy[i], token)
			}
		})
	}
}
