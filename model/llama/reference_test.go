package llama

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/model"
	"capgpu/model/modeltest"
)

// For every type of tensor, alone and mixed, both rotations of heads, shared heads
// and a tied classifier, a model's logits equal those of plain loops in float64.
func TestAgainstReference(t *testing.T) {
	all := []model.Type{model.F32, model.F16, model.BF16, model.Q8_0, model.Q4_0, model.I8}
	cases := map[string]struct {
		types  []model.Type
		tied   bool
		change func(*model.Config)
	}{
		"mixed":       {types: all},
		"mixed, tied": {types: []model.Type{model.I8, model.Q4_0, model.F16, model.F32}, tied: true},
		"halves":      {types: all[:1], change: func(c *model.Config) { c.Rope = model.RopeHalves }},
		"one head":    {types: all[:1], change: func(c *model.Config) { c.Heads, c.KVHeads, c.HeadDim = 1, 1, 64 }},
		"all heads":   {types: all[:1], change: func(c *model.Config) { c.KVHeads = c.Heads }},
		"scaled": {types: all[:1], change: func(c *model.Config) {
			c.RopeBase = 500
			c.Scaling = model.RopeScaling{Factor: 8, LowFactor: 1, HighFactor: 4, Original: 40}
		}},
		"odd": {types: all[:3], change: func(c *model.Config) {
			c.Dim, c.Hidden, c.HeadDim, c.Heads, c.KVHeads, c.Vocab, c.Layers = 38, 51, 10, 3, 3, 97, 3
		}},
	}

	var small, large []model.Type
	for typ := range model.Types {
		if elements, _ := typ.Block(); elements == 256 {
			large = append(large, typ)
		} else if typ.Packed() {
			small = append(small, typ)
		}
	}
	c := cases["mixed"]
	c.types = small
	cases["blocks of 32"] = c
	c.types = large
	c.change = func(c *model.Config) { c.Dim, c.Hidden, c.Heads, c.KVHeads, c.HeadDim = 256, 512, 4, 2, 64 }
	cases["blocks of 256"] = c

	for _, typ := range all {
		c := cases["mixed"]
		c.types = []model.Type{typ}
		cases[typ.String()] = c
		c.tied = true
		c.change = func(c *model.Config) { c.Rope = model.RopeHalves }
		cases[typ.String()+", halves, tied"] = c
	}

	for engine, o := range engines {
		s := open(t, o)
		for name, c := range cases {
			t.Run(fmt.Sprintf("%s/%s", engine, name), func(t *testing.T) {
				if raceEnabled && (o.LaneOnly && name != "mixed" && name != "blocks of 32" || strings.HasSuffix(name, "halves, tied")) {
					t.Skip("the detector makes it slow; without it all of these run")
				}

				config := shape()
				if c.change != nil {
					c.change(&config)
				}
				f := seeded(11, config, c.tied, c.types...)
				m := load(t, s, f, Options{Sequences: 2, Batch: 9, PagePositions: 16})
				compare(t, m, f)
			})
		}
	}
}

// Each family of models, with the options that its models have, equals plain loops in
// float64.
func TestFamilies(t *testing.T) {
	windows := func(window, every int) func(c *model.Config) {
		return func(c *model.Config) { c.Window, c.GlobalEvery, c.Layers = window, every, 3 }
	}
	for name, c := range map[string]struct {
		arch   model.Arch
		change func(c *model.Config)
	}{
		"mistral": {model.Llama, windows(7, 0)},
		"qwen2":   {model.Qwen2, nil},
		"qwen3":   {model.Qwen3, func(c *model.Config) { c.HeadDim = 48 }},
		"gemma":   {model.Gemma, func(c *model.Config) { c.KVHeads = 1 }},
		"gemma2": {model.Gemma2, func(c *model.Config) {
			windows(9, 2)(c)
			c.ScoreScale, c.ScoreCap, c.LogitCap = 0.2, 2, 1.5
		}},
		"gemma3": {model.Gemma3, func(c *model.Config) {
			windows(5, 3)(c)
			c.RopeBase, c.LocalRopeBase = 1e6, 1e3
			c.Scaling = model.RopeScaling{Factor: 8, LowFactor: 1, HighFactor: 4, Original: 40}
		}},
		"phi3":         {model.Phi3, func(c *model.Config) { c.LongAfter, c.RopeScale = 32, 1.19 }},
		"phi3 in part": {model.Phi3, func(c *model.Config) { c.Turned, c.LongAfter, c.RopeScale = 20, 32, 1.3 }},
		"phi3 short":   {model.Phi3, func(c *model.Config) { c.LongAfter = 80 }},
	} {
		for engine, o := range engines {
			t.Run(engine+"/"+name, func(t *testing.T) {
				if raceEnabled && o.LaneOnly && name != "gemma2" {
					t.Skip("the detector makes it slow; without it all of these run")
				}
				config := shape()
				config.Arch, config.Rope = c.arch, model.RopeHalves
				if c.change != nil {
					c.change(&config)
				}
				f := seeded(12, config, c.arch.Traits().Tied, model.F32, model.Q8_0)
				if config.LongAfter != 0 {
					f.Weights.RopeFactors, f.Weights.LongFactors = factors(config.TurnedDim(), 3), factors(config.TurnedDim(), 1)
				}
				compare(t, load(t, open(t, o), f, Options{Sequences: 2, Batch: 9, PagePositions: 16}), f)
			})
		}
	}
}

// factors are 1 and more, the faster the smaller step is.
func factors(headDim int, step float32) model.Tensor {
	t := model.Tensor{Rows: 1, Cols: headDim / 2}
	for i := range t.Cols {
		t.Data = append(t.Data, f32Bytes(1+float32(i)/step)...)
	}
	return t
}

// A model with frequency factors in its file.
func TestRopeFactors(t *testing.T) {
	f := seeded(11, shape(), true, model.F32)
	f.Weights.RopeFactors = factors(f.Config.HeadDim, 3)
	compare(t, load(t, open(t, engines["native"]), f, Options{Sequences: 2}), f)
}

// Two right logits differ by up to this: they are about 1, and a pass sums in f32.
const tolerance = 2e-4

// compare feeds a text in pieces and compares all logits, and the vector of the text.
func compare(t *testing.T, m *Model, f *model.File) {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 4))
	ctx := testContext(t)
	reference, err := modeltest.New(f)
	require.NoError(t, err)
	tokens := randomTokens(r, 6+rounds(35), f.Config.Vocab)
	q := newSequence(t, m, len(tokens))
	defer q.Close()

	mean := make([]float64, f.Config.Dim)
	for at := 0; at < len(tokens); {
		var rows []Row
		for i := range min(1+r.IntN(m.Info().Batch), len(tokens)-at) {
			rows = append(rows, Row{q, at + i, tokens[at+i], true})
		}
		require.NoError(t, m.Step(ctx, rows))
		for i := range rows {
			want := reference.Step(tokens[at+i], at+i)
			diff, where := modeltest.MaxDiff(m.Logits(i), want)
			require.LessOrEqual(t, diff, tolerance, "position %d, token %d: %g, not %g", at+i, where, m.Logits(i)[where], want[where])
			for k, v := range reference.Hidden() {
				mean[k] += v
			}
		}
		at += len(rows)
	}

	length := 0.0
	for _, v := range mean {
		length += v * v
	}

	for k := range mean {
		mean[k] /= math.Sqrt(length)
	}

	got := make([]float32, f.Config.Dim)
	for range 2 { // nothing of the first shows in the second
		other := newSequence(t, m, len(tokens))
		require.NoError(t, m.Embed(ctx, other, tokens, got))
		other.Close()
		diff, where := modeltest.MaxDiff(got, mean)
		require.LessOrEqual(t, diff, tolerance, "element %d: %g, not %g", where, got[where], mean[where])
	}
}
