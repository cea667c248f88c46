package llama

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/model"
	"capgpu/model/modeltest"
)

// alone feeds tokens one by one and returns the logits of each position, as bits.
func alone(t *testing.T, m *Model, tokens []int32) [][]uint32 {
	t.Helper()
	q := newSequence(t, m, len(tokens))
	defer q.Close()
	var all [][]uint32
	for i, id := range tokens {
		require.NoError(t, m.Step(testContext(t), []Row{{q, i, id, true}}))
		all = append(all, bits(m.Logits(0)))
	}
	return all
}

func bits(x []float32) []uint32 {
	b := make([]uint32, len(x))
	for i, v := range x {
		b[i] = math.Float32bits(v)
	}
	return b
}

func randomTokens(r *rand.Rand, n, vocab int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = r.Int32N(int32(vocab))
	}
	return tokens
}

// text in progress, in a batch with others.
type feeding struct {
	q      *Sequence
	tokens []int32
	want   [][]uint32
	at     int
}

// The result of a row does not depend on its batch. Prompts in pieces of any size,
// several sequences beside each other in any order, and sequences that come and go
// and leave their pages to others all give the bits that they give token by token,
// alone.
func TestBatchesAreBitIdentical(t *testing.T) {
	for _, typ := range []model.Type{model.F32, model.F16, model.BF16, model.Q8_0, model.Q4_0, model.I8} {
		t.Run(typ.String(), func(t *testing.T) {
			f := seeded(1, shape(), true, typ)
			m := load(t, open(t, engines["native"]), f, Options{Sequences: 4, Batch: 13, PagePositions: 8, Positions: 4 * 56})
			ctx := testContext(t)
			r := rand.New(rand.NewPCG(5, 6))
			var texts []feeding
			for range 6 {
				tokens := randomTokens(r, 1+r.IntN(50), f.Config.Vocab)
				texts = append(texts, feeding{tokens: tokens, want: alone(t, m, tokens)})
			}

			var running []*feeding
			for done := 0; done < rounds(40); {
				for len(running) < 4 {
					one := texts[r.IntN(len(texts))]
					one.q = newSequence(t, m, len(one.tokens))
					running = append(running, &one)
				}

				var rows []Row
				var want [][]uint32
				for _, i := range r.Perm(len(running)) {
					x := running[i]
					n := min(r.IntN(8), len(x.tokens)-x.at, m.Info().Batch-len(rows))
					for range n {
						row := Row{x.q, x.at, x.tokens[x.at], r.IntN(2) == 0}
						if row.Logits {
							want = append(want, x.want[x.at])
						}
						rows = append(rows, row)
						x.at++
					}
				}

				if len(rows) == 0 {
					continue
				}

				require.NoError(t, m.Step(ctx, rows))
				for i := range want {
					require.Equal(t, want[i], bits(m.Logits(i)), "logits %d of %d rows", i, len(rows))
				}

				require.Nil(t, m.Logits(len(want)))
				running = slices.DeleteFunc(running, func(x *feeding) bool {
					if x.at < len(x.tokens) && r.IntN(20) > 0 {
						return false
					}
					x.q.Close()
					done++
					return true
				})
			}

			for _, x := range running {
				x.q.Close()
			}

			require.Zero(t, m.PagesUsed())
		})
	}
}

// Greedy generates the tokens that Step and the logits give, wherever it begins,
// and leaves the sequence so that both can continue.
func TestGreedyAgainstSteps(t *testing.T) {
	for name, engine := range engines {
		t.Run(name, func(t *testing.T) {
			f := seeded(2, shape(), false, model.F32)
			m := load(t, open(t, engine), f, Options{Sequences: 2, Batch: 4, PagePositions: 4})
			ctx := testContext(t)
			r := rand.New(rand.NewPCG(8, 9))
			for range rounds(15) {
				prompt := randomTokens(r, 1+r.IntN(4), f.Config.Vocab)
				slow, fast := newSequence(t, m, f.Config.Context), newSequence(t, m, f.Config.Context)
				var rows, same []Row
				for i, id := range prompt[:len(prompt)-1] {
					rows, same = append(rows, Row{slow, i, id, false}), append(same, Row{fast, i, id, false})
				}

				if len(rows) > 0 {
					require.NoError(t, m.Step(ctx, rows))
					require.NoError(t, m.Step(ctx, same))
				}

				token, position := prompt[len(prompt)-1], len(prompt)-1
				for position < f.Config.Context {
					n := 1 + r.IntN(f.Config.Context-position)
					stop := r.IntN(n + 1)
					var got []int32
					require.NoError(t, m.Greedy(ctx, fast, token, position, n, func(id int32) bool {
						got = append(got, id)
						return len(got) != stop
					}))

					if stop > 0 {
						require.Len(t, got, stop)
					} else {
						require.Len(t, got, n)
					}

					for _, id := range got {
						require.NoError(t, m.Step(ctx, []Row{{slow, position, token, true}}))
						token = modeltest.Argmax(m.Logits(0))
						position++
						require.Equal(t, token, id)
					}

					require.Equal(t, position, fast.Written())
					require.Equal(t, position, slow.Written())
				}

				slow.Close()
				fast.Close()
			}
		})
	}
}

// A pass that is too long for one list becomes several lists, and computes the
// same.
func TestSplit(t *testing.T) {
	c := shape()
	c.Layers = 130 // 9 launches each: more than a list has, and more arguments
	c.Dim, c.Hidden, c.Heads, c.KVHeads, c.HeadDim = 32, 32, 1, 1, 32
	f := seeded(3, c, true, model.F32)
	b, err := Draw(f, Options{Batch: 1}, 0)
	require.NoError(t, err)
	parts := split(b.Body(1))
	require.Greater(t, len(parts), 2)
	var all []Launch
	for _, p := range parts {
		all = append(all, p...)
		require.LessOrEqual(t, len(p), client.MaxListCommands)
		require.LessOrEqual(t, recordingBytes(p)-uint64(64*len(p)), uint64(listArgBytes))
	}

	require.Equal(t, b.Body(1), all)

	m := load(t, open(t, engines["native"]), f, Options{Sequences: 2, Batch: 2})
	tokens := randomTokens(rand.New(rand.NewPCG(1, 1)), 20, c.Vocab)
	want := alone(t, m, tokens)
	q := newSequence(t, m, len(tokens))
	for i := 0; i < len(tokens); i += 2 {
		require.NoError(t, m.Step(testContext(t), []Row{{q, i, tokens[i], true}, {q, i + 1, tokens[i+1], true}}))
		require.Equal(t, want[i], bits(m.Logits(0)))
		require.Equal(t, want[i+1], bits(m.Logits(1)))
	}

	var got []int32
	require.NoError(t, m.Greedy(testContext(t), q, tokens[19], 19, 1, func(id int32) bool { got = append(got, id); return true }))
	require.Len(t, got, 1)
}
