package server

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"capgpu/model/tokenizer"
)

// firstStop is the offset of the first stop string; -1: there is none.
func firstStop(text string, stops []string) int {
	for i := range len(text) {
		for _, s := range stops {
			if strings.HasPrefix(text[i:], s) {
				return i
			}
		}
	}
	return -1
}

// certain is the length of a text's beginning that can be delivered while more may
// come.
func certain(text string, stops []string) int {
	for i := range len(text) {
		for _, s := range stops {
			if strings.HasPrefix(s, text[i:]) {
				return i
			}
		}
	}
	return len(text)
}

func TestAnswerText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stops := rapid.SliceOfN(rapid.StringMatching(`[abé]{1,4}`), 0, 3).Draw(t, "stops")
		ids := rapid.SliceOfN(rapid.OneOf(rapid.Int32Range(259, 267), rapid.SampledFrom([]int32{3 + 0xc3, 3 + 0xa9, 3 + 0xff, 2})), 0, 20).Draw(t, "ids")
		a := answerText{decoder: testWords.Decoder(1), stop: stops}
		d := testWords.Decoder(1)
		all, got, stopped := "", "", false
		for _, id := range ids {
			all += d.Add(id)
			text, s := a.add(id)
			got += text
			if i := firstStop(all, stops); i >= 0 {
				require.True(t, s)
				require.Equal(t, all[:i], got)
				stopped = true
				break
			}
			require.False(t, s)
			require.Equal(t, all[:certain(all, stops)], got)
			require.True(t, strings.ToValidUTF8(got, "") == got)
		}

		if !stopped {
			all += d.Flush()
			text, s := a.rest()
			got += text
			if i := firstStop(all, stops); i >= 0 {
				require.True(t, s)
				all = all[:i]
			}
			require.Equal(t, all, got)
		}
	})
}

func TestLikelihood(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	logits := make([]float32, 300)
	for i := range logits {
		logits[i] = float32(random.NormFloat64() * 3)
	}

	logits[7], logits[9] = float32(math.NaN()), float32(math.Inf(-1))
	c := likelihood(logits, 5, 300)
	require.Len(t, c.Top, 299, "what is no number is not likely")
	sum := 0.0
	for i, top := range c.Top {
		sum += math.Exp(float64(top.LogProb))
		if i > 0 {
			require.LessOrEqual(t, top.LogProb, c.Top[i-1].LogProb)
		}
		require.InDelta(t, logits[top.ID]-logits[5], top.LogProb-c.LogProb, 1e-4)
	}

	require.InDelta(t, 1, sum, 1e-4)
	require.Equal(t, c.Top[:4], likelihood(logits, 5, 4).Top)
	require.Nil(t, likelihood(logits, 5, 0).Top)
	require.True(t, math.IsInf(float64(likelihood(logits, 7, 0).LogProb), -1))
}

func TestWordsOfTheTests(t *testing.T) {
	require.Equal(t, 268, testWords.Vocab())
	require.Equal(t, int32(1), testWords.Encode("", tokenizer.Encode{})[0])
}
