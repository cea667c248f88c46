package sample

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"capgpu/gpuerr"
)

var (
	nan    = float32(math.NaN())
	inf    = float32(math.Inf(1))
	banned = float32(math.Inf(-1))
)

// anyLogits draws logits of a few or many different values, with special ones among
// them.
func anyLogits(t *rapid.T, vocab int) []float32 {
	values := rapid.OneOf(rapid.Float32Range(-20, 20), rapid.Map(rapid.IntRange(-3, 3), func(i int) float32 { return float32(i) }),
		rapid.SampledFrom([]float32{0, nan, inf, banned, math.MaxFloat32, -math.MaxFloat32, 1e-30}))
	return rapid.SliceOfN(values, vocab, vocab).Draw(t, "logits")
}

func anyParams(t *rapid.T, vocab int) Params {
	p := Params{
		Temperature: rapid.SampledFrom([]float32{0, 0.1, 0.7, 1, 2}).Draw(t, "temperature"),
		TopK:        rapid.SampledFrom([]int{0, 1, 2, 5, vocab - 1, vocab, vocab + 7}).Draw(t, "topK"),
		TopP:        rapid.SampledFrom([]float32{0, 0.01, 0.3, 0.5, 0.9, 0.999, 1}).Draw(t, "topP"),
		MinP:        rapid.SampledFrom([]float32{0, 0.01, 0.2, 1}).Draw(t, "minP"),
		Repetition:  rapid.SampledFrom([]float32{0, 1, 1.3, 0.5}).Draw(t, "repetition"),
		Presence:    rapid.SampledFrom([]float32{0, 0.5, -1}).Draw(t, "presence"),
		Frequency:   rapid.SampledFrom([]float32{0, 0.25, -2}).Draw(t, "frequency"),
		PenaltyLast: rapid.SampledFrom([]int{0, -1, 1, 2, 5}).Draw(t, "penaltyLast"),
		Seed:        rapid.Uint64().Draw(t, "seed"), Seeded: true,
	}

	if n := rapid.IntRange(0, 3).Draw(t, "biases"); n > 0 {
		p.Bias = map[int32]float32{}
		for range n {
			id := rapid.Int32Range(0, int32(vocab-1)).Draw(t, "id")
			p.Bias[id] = rapid.SampledFrom([]float32{5, -5, banned, math.MaxFloat32}).Draw(t, "by")
		}
	}

	return p
}

// TestRest: a sampler that has given its memory back continues as if it had not.
func TestRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vocab := rapid.IntRange(1, 40).Draw(t, "vocab")
		p := anyParams(t, vocab)
		a, err := New(p, vocab)
		require.NoError(t, err)
		b, err := New(p, vocab)
		require.NoError(t, err)
		for range 5 {
			logits := anyLogits(t, vocab)
			a.Rest()
			require.Nil(t, a.work)
			require.Nil(t, a.weights)
			require.Nil(t, a.order)
			rested, err1 := a.Next(logits, 3)
			other, err2 := b.Next(logits, 3)
			require.Equal(t, err2, err1)
			require.Equal(t, other, rested)
		}
	})
}

// TestAgainstSlow: the same tokens as a sampler that sorts, over texts of some tokens.
func TestAgainstSlow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vocab := rapid.IntRange(1, 40).Draw(t, "vocab")
		p := anyParams(t, vocab)
		s, err := New(p, vocab)
		require.NoError(t, err)
		model := newSlow(p, vocab)
		prompt := rapid.SliceOfN(rapid.Int32Range(0, int32(vocab-1)), 0, 8).Draw(t, "prompt")
		s.Accept(prompt...)
		model.came = append(model.came, prompt...)
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			logits := anyLogits(t, vocab)
			before := slices.Clone(logits)
			id, logProb, kept, ok := model.next(logits)
			got, err := s.Next(logits, 0)
			if !ok {
				if err != ErrNoNumbers {
					require.ErrorIs(t, err, gpuerr.Invalid)
				}
				continue
			}

			require.NoError(t, err)
			require.Equal(t, id, got.ID, "kept %v", kept)
			if math.IsInf(float64(float32(logProb)), -1) { // beyond what its type has
				require.True(t, math.IsInf(float64(got.LogProb), -1))
				continue
			}

			require.InDelta(t, logProb, float64(got.LogProb), 1e-5+1e-6*math.Abs(logProb))
			for i := range before {
				require.Equal(t, math.Float32bits(before[i]), math.Float32bits(logits[i]), "logits are not the sampler's to write")
			}
		}
	})
}

// TestLargeSelection: the partition, which the small vocabularies above do not reach.
func TestLargeSelection(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const vocab = 5000
	for round := range 60 {
		logits := make([]float32, vocab)
		for i := range logits {
			logits[i] = float32(r.NormFloat64() * 3)
			if round%3 == 0 {
				logits[i] = float32(math.Round(float64(logits[i]))) // many equals
			}
		}

		p := Params{Temperature: 1, TopK: r.IntN(vocab), TopP: float32(r.Float64()), Seed: r.Uint64(), Seeded: true}
		if round%2 == 0 {
			p.TopK = small + r.IntN(vocab)
		}

		s, err := New(p, vocab)
		require.NoError(t, err)
		model := newSlow(p, vocab)
		id, _, kept, _ := model.next(logits)
		got, err := s.Next(logits, -1)
		require.NoError(t, err)
		require.Equal(t, id, got.ID)
		left := 0
		for i, w := range s.weights {
			if w > 0 {
				left++
				require.Contains(t, kept, int32(i))
			}
		}

		require.Equal(t, len(kept), left)
	}
}

// TestFrequencies: 50,000 draws fall as the probabilities say. The seed is fixed, so
// the test is the same each time; the bound is of a chi-squared of 1 in a million.
func TestFrequencies(t *testing.T) {
	probs := []float64{0.4, 0.25, 0.15, 0.1, 0.05, 0.03, 0.02}
	logits := make([]float32, len(probs))
	for i, p := range probs {
		logits[i] = float32(math.Log(p)) + 3
	}

	for _, c := range []struct {
		name string
		p    Params
		want []float64
	}{
		{"all", Params{Temperature: 1}, probs},
		{"topK", Params{Temperature: 1, TopK: 3}, []float64{0.5, 0.3125, 0.1875, 0, 0, 0, 0}},
		{"topP", Params{Temperature: 1, TopP: 0.7}, []float64{0.5, 0.3125, 0.1875, 0, 0, 0, 0}},
		{"minP", Params{Temperature: 1, MinP: 0.3}, []float64{0.5, 0.3125, 0.1875, 0, 0, 0, 0}},
		{"hot", Params{Temperature: 2, TopK: 2}, []float64{0.5584816, 0.4415184, 0, 0, 0, 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.p.Seed, c.p.Seeded = 7, true
			s, err := New(c.p, len(probs))
			require.NoError(t, err)
			const draws = 50_000
			count := make([]float64, len(probs))
			for range draws {
				got, err := s.Next(logits, -1)
				require.NoError(t, err)
				count[got.ID]++
			}

			chi := 0.0
			for i, want := range c.want {
				if want == 0 {
					require.Zero(t, count[i], "token %d", i)
					continue
				}
				d := count[i] - want*draws
				chi += d * d / (want * draws)
			}

			require.Less(t, chi, 38.3)
		})
	}
}

func TestLogProbs(t *testing.T) {
	logits := []float32{1, 3, nan, 2, banned, 3}
	s, err := New(Params{Bias: map[int32]float32{0: 50}}, len(logits))
	require.NoError(t, err)
	c, err := s.Next(logits, 10)
	require.NoError(t, err)
	sum := math.Log(math.Exp(1) + 2*math.Exp(3) + math.Exp(2))
	require.EqualValues(t, 0, c.ID)
	require.InDelta(t, 1-sum, c.LogProb, 1e-6, "before the bias")
	var ids []int32
	for _, top := range c.Top {
		ids = append(ids, top.ID)
		require.InDelta(t, float64(logits[top.ID])-sum, top.LogProb, 1e-6)
	}

	require.Equal(t, []int32{1, 5, 3, 0}, ids, "the lowest of equals first; nothing impossible")
	c, err = s.Next(logits, 1)
	require.NoError(t, err)
	require.Len(t, c.Top, 1)
}

func TestSeeds(t *testing.T) {
	text := func(p Params) (ids []int32) {
		s, err := New(p, 1000)
		require.NoError(t, err)
		logits := make([]float32, 1000)
		for range 20 {
			c, err := s.Next(logits, -1)
			require.NoError(t, err)
			ids = append(ids, c.ID)
		}
		return ids
	}

	one := Params{Temperature: 1, Seed: 1, Seeded: true}
	require.Equal(t, text(one), text(one))
	require.NotEqual(t, text(one), text(Params{Temperature: 1, Seed: 2, Seeded: true}))
	require.NotEqual(t, text(Params{Temperature: 1}), text(Params{Temperature: 1}), "each its own")

	// The tokens of this seed, the same on every machine since the first version.
	require.Equal(t, []int32{787, 812, 433, 522, 512}, text(one)[:5])
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		field string
		p     Params
	}{
		{"temperature", Params{Temperature: -1}}, {"temperature", Params{Temperature: nan}}, {"temperature", Params{Temperature: inf}},
		{"topK", Params{TopK: -1}}, {"topP", Params{TopP: 1.1}}, {"topP", Params{TopP: nan}}, {"minP", Params{MinP: -0.1}},
		{"repetition", Params{Repetition: -1}}, {"presence", Params{Presence: 101}}, {"frequency", Params{Frequency: banned}},
		{"penaltyLast", Params{PenaltyLast: MaxPenaltyLast + 1}},
		{"bias", Params{Bias: map[int32]float32{10: 1}}}, {"bias", Params{Bias: map[int32]float32{-1: 1}}}, {"bias", Params{Bias: map[int32]float32{1: nan}}},
		{"bias", Params{Bias: func() map[int32]float32 {
			m := map[int32]float32{}
			for i := range int32(MaxBias + 1) {
				m[i] = 1
			}
			return m
		}()}},
	} {
		_, err := New(c.p, 10)
		require.ErrorIs(t, err, gpuerr.Invalid, "%+v", c.p)
		require.ErrorContains(t, err, c.field+":")
	}

	_, err := New(Params{}, 0)
	require.ErrorContains(t, err, "vocab:")

	s, err := New(Params{}, 3)
	require.NoError(t, err)
	_, err = s.Next([]float32{1, 2}, 0)
	require.ErrorContains(t, err, "logits: 2 of a vocabulary of 3")
	_, err = s.Next([]float32{nan, banned, nan}, 0)
	require.ErrorIs(t, err, ErrNoNumbers)
	c, err := s.Next([]float32{nan, -5, inf}, 0)
	require.NoError(t, err)
	require.EqualValues(t, 2, c.ID)
	s.Accept(-1, 3, math.MaxInt32) // of no token
}

func TestPlain(t *testing.T) {
	require.True(t, (&Params{TopK: 3, Repetition: 1}).Plain())
	for _, p := range []Params{{Temperature: 1}, {Repetition: 1.1}, {Presence: 1}, {Frequency: 1}, {Bias: map[int32]float32{1: 1}}} {
		require.False(t, p.Plain(), "%+v", p)
	}
}

// TestNoAllocation: a text of any length allocates only the sampler's own memory.
func TestNoAllocation(t *testing.T) {
	const vocab = 2000
	logits := make([]float32, vocab)
	for i := range logits {
		logits[i] = float32(i%97) / 10
	}

	for _, p := range []Params{
		{}, {Temperature: 1}, {Temperature: 0.8, TopK: 40, TopP: 0.9, MinP: 0.01, Repetition: 1.1, Presence: 0.1, Bias: map[int32]float32{3: 1}},
		{Temperature: 1, TopK: 1000},
	} {
		s, err := New(p, vocab)
		require.NoError(t, err)
		step := func() {
			if _, err := s.Next(logits, 0); err != nil {
				t.Fatal(err)
			}
		}
		for range 100 {
			step()
		}
		require.Zero(t, testing.AllocsPerRun(100, step), "%+v", p)
	}
}

func BenchmarkNext(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	logits := make([]float32, 128_256)
	for i := range logits {
		logits[i] = float32(r.NormFloat64() * 3)
	}

	for _, c := range []struct {
		name string
		p    Params
		top  int
	}{
		{"greedy", Params{}, -1}, {"greedy-logprob", Params{}, 0}, {"all", Params{Temperature: 1}, -1},
		{"k40", Params{Temperature: 0.8, TopK: 40}, -1}, {"p0.9", Params{Temperature: 0.8, TopP: 0.9}, -1},
		{"k40-p0.9-penalties", Params{Temperature: 0.8, TopK: 40, TopP: 0.9, Repetition: 1.1}, -1},
		{"k5000", Params{Temperature: 0.8, TopK: 5000}, -1}, {"top5", Params{Temperature: 1}, 5},
	} {
		b.Run(c.name, func(b *testing.B) {
			s, err := New(c.p, len(logits))
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := s.Next(logits, c.top); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
