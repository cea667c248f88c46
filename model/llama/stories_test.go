package llama

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/model/modeltest"
)

// The real model generates the reference's text, from both of its files, on both
// engines, by Greedy and step by step; its logits equal the reference's.
func TestStories(t *testing.T) {
	for name, engine := range engines {
		for _, file := range []string{storiesBin, storiesGGUF} {
			t.Run(name+"/"+file, func(t *testing.T) {
				if raceEnabled && engine.LaneOnly && file == storiesBin {
					t.Skip("takes long with the race detector; the other file is as good")
				}

				f := stories(t, file)
				m := load(t, open(t, engine), f, Options{Sequences: 2})
				ctx := testContext(t)
				q := newSequence(t, m, f.Config.Context)
				begin := f.Tokenizer.BOS()
				steps := min(256, f.Config.Context) // the GGUF has a context of 128
				var text []int32
				require.NoError(t, m.Greedy(ctx, q, begin, 0, steps, func(id int32) bool {
					text = append(text, id)
					return true
				}))

				require.Equal(t, steps, q.Written())
				for n, ref := range map[int]string{64: "t0.n64", 128: "t0.n128", 256: "t0.n256"} {
					if n > steps {
						continue
					}
					// The program that made the reference ends its line.
					require.Equal(t, modeltest.StoriesText(t, ref), modeltest.Text(f.Tokenizer, append([]int32{begin}, text[:n]...)...)+"\n")
				}

				token := begin
				for i, want := range modeltest.StoriesLogits(t) {
					require.NoError(t, m.Step(ctx, []Row{{q, i, token, true}}))
					diff, at := modeltest.MaxDiff(m.Logits(0), want)
					require.LessOrEqual(t, diff, 1e-3, "position %d, token %d", i, at)
					token = modeltest.Argmax(m.Logits(0))
					require.Equal(t, text[i], token)
				}
			})
		}
	}
}

// After a prompt of one pass comes the reference's text, at the reference's logits.
func TestStoriesPrompts(t *testing.T) {
	f := stories(t, storiesGGUF)
	m := load(t, open(t, engines["native"]), f, Options{Sequences: 1})
	ctx := testContext(t)
	prompts := modeltest.StoriesPrompts(t)
	require.NotEmpty(t, prompts)
	texts := map[string]string{"Once upon a time": "prompt1.t0.n128", "The dog": "prompt2.t0.n128"}
	for text, tokens := range prompts {
		q := newSequence(t, m, f.Config.Context)
		var rows []Row
		for i, id := range tokens {
			rows = append(rows, Row{q, i, id, i == len(tokens)-1})
		}

		require.NoError(t, m.Step(ctx, rows))
		reference, err := modeltest.New(f)
		require.NoError(t, err)
		var want []float64
		for i, id := range tokens {
			want = reference.Step(id, i)
		}

		diff, _ := modeltest.MaxDiff(m.Logits(0), want)
		require.LessOrEqual(t, diff, 1e-3, "%q", text)
		if ref, ok := texts[text]; ok {
			delete(texts, text)
			text := append(tokens[:len(tokens):len(tokens)], modeltest.Argmax(m.Logits(0)))
			require.NoError(t, m.Greedy(ctx, q, text[len(tokens)], len(tokens), 128-len(tokens), func(id int32) bool {
				text = append(text, id)
				return true
			}))
			require.Equal(t, modeltest.StoriesText(t, ref), modeltest.Text(f.Tokenizer, text...)+"\n")
		}

		q.Close()
	}

	require.Empty(t, texts)
}
