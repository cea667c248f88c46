package llm

import (
	"context"
	"math"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/driver/session/sessiontest"
	"capgpu/internal/leakcheck"
	"capgpu/model"
	"capgpu/model/llama"
	"capgpu/model/synth"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

const texts = 3 // together

var options = llama.Options{Sequences: texts, Context: 80, Batch: 16}

func tiny(t *testing.T, tied bool) *model.File {
	t.Helper()
	o, err := synth.Shape("tiny")
	require.NoError(t, err)
	o.Seed, o.Tied = 5, tied
	m, err := synth.New(o)
	require.NoError(t, err)
	f, err := m.File()
	require.NoError(t, err)
	return f
}

func serve(t *testing.T, f *model.File) *Served {
	t.Helper()
	s, err := Serve(context.Background(), sessiontest.Start(t, sessiontest.Options{}).Socket, f, options, options.Context)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func inProcess(t *testing.T, f *model.File) *InProcess {
	t.Helper()
	p, err := NewInProcess(f, options, texts, options.Batch)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// TestSame: for any request the answers with and without the service are the same,
// and a text does not depend on which side chooses its tokens.
func TestSame(t *testing.T) {
	f := tiny(t, true)
	ours, peer := serve(t, f), inProcess(t, f)
	first := First(f)
	require.NoError(t, SameBits(ours, peer, first, 40))
	var out [4][]int32
	for i := range out {
		out[i] = make([]int32, options.Context)
	}

	require.NoError(t, ours.Greedy(first, out[0]))
	require.NoError(t, peer.Greedy(first, out[1]))
	require.NoError(t, Sampled(ours, first, out[2]))
	require.NoError(t, Sampled(peer, first, out[3]))
	for _, text := range out[1:] {
		require.NoError(t, SameTokens(out[0], text))
	}

	var together [2][][]int32
	for i := range together {
		for range texts {
			together[i] = append(together[i], make([]int32, 20))
		}
	}

	require.NoError(t, Crowd(ours, first, together[0]))
	require.NoError(t, Crowd(peer, first, together[1]))
	require.Equal(t, together[0], together[1])
	require.Equal(t, out[0][:20], together[0][0], "alone as in a crowd")
	require.NotEqual(t, together[0][0], together[0][1], "with another beginning")
	prompt := append([]int32{first}, out[0][:options.Batch-1]...)
	a, err := Prompt(ours, prompt)
	require.NoError(t, err)
	b, err := Prompt(peer, prompt)
	require.NoError(t, err)
	require.Equal(t, out[0][options.Batch-1], a, "as token by token")
	require.Equal(t, a, b)
	require.Positive(t, ours.DeviceNanos())
}

// TestOtherWeights: a single differing weight is found.
func TestOtherWeights(t *testing.T) {
	f, other := tiny(t, true), tiny(t, true)
	other.Weights.Layers[1].Down.Data[4*77] ^= 1 // of the last bit of an element
	err := SameBits(inProcess(t, f), inProcess(t, other), First(f), 40)
	require.ErrorContains(t, err, "position")
}

func TestRefusals(t *testing.T) {
	f := tiny(t, true)
	p := inProcess(t, f)
	require.ErrorContains(t, p.Step(make([]Row, 5)), "no passes of 5 rows")
	_, err := NewInProcess(f, llama.Options{})
	require.ErrorContains(t, err, "batch")
	_, err = Shaped("vast")
	require.Error(t, err)
	t.Setenv("CAPGPU_MODELS", t.TempDir())
	_, err = Stories()
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrNoStories, "it was said where it is")
}

// TestPlain: the program in C writes the same text.
func TestPlain(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("SKIPPED: gcc is not installed (Debian: apt-get install gcc)")
	}

	for name, tied := range map[string]bool{"tied": true, "untied": false} {
		t.Run(name, func(t *testing.T) {
			f := tiny(t, tied)
			require.Equal(t, options.Context, agree(t, f), "tokens")
		})
	}

	t.Run("stories", func(t *testing.T) {
		f, err := Stories()
		if err != nil {
			t.Skip("SKIPPED: ", err)
		}
		defer f.Close()
		require.Equal(t, options.Context, agree(t, f), "tokens")
	})

	// The program also converts its operands to bytes, so the texts diverge at some
	// point.
	t.Run("int8", func(t *testing.T) {
		f, err := Int8(tiny(t, true))
		require.NoError(t, err)
		c, err := StartPlain(f, func(start func() error) error { return start() })
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()

		text := make([]int32, options.Context)
		_, err = c.Greedy(First(f), text)
		require.NoError(t, err)
		agreed, err := Agreed(inProcess(t, f), First(f), text)
		require.NoError(t, err)
		require.Greater(t, agreed, options.Context*8/10)
		other, err := Int8(tiny(t, false))
		require.NoError(t, err)
		agreed, err = Agreed(inProcess(t, other), First(f), text)
		require.NoError(t, err)
		require.Less(t, agreed, options.Context/2, "of another model")
	})
}

// agree is for how many tokens the program writes the same text.
func agree(t *testing.T, f *model.File) int {
	t.Helper()
	c, err := StartPlain(f, func(start func() error) error { return start() })
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	ours, theirs := make([]int32, options.Context), make([]int32, options.Context)
	require.NoError(t, inProcess(t, f).Greedy(First(f), ours))
	for range 2 { // again and again
		took, err := c.Greedy(First(f), theirs)
		require.NoError(t, err)
		require.Positive(t, took)
	}
	return Common(ours, theirs)
}

// TestPlainEnds: a program that does not answer is an error.
func TestPlainEnds(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("SKIPPED: gcc is not installed (Debian: apt-get install gcc)")
	}
	c, err := StartPlain(tiny(t, true), func(start func() error) error { return start() })
	require.NoError(t, err)
	_, err = c.Greedy(0, make([]int32, 1000)) // more than its context
	require.ErrorContains(t, err, "the program in C")
	require.ErrorContains(t, c.Close(), "there are no such texts")
}

func TestTokens(t *testing.T) {
	require.NoError(t, SameTokens([]int32{1, 2}, []int32{1, 2}))
	require.ErrorContains(t, SameTokens([]int32{1, 2, 3}, []int32{1, 3, 3}), "after 1 tokens")
	require.Error(t, SameTokens([]int32{1, 2}, []int32{1}))
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	require.EqualValues(t, 2, Largest([]float32{nan, 1, 3, 3, inf}))
	require.EqualValues(t, 0, Largest([]float32{nan, nan}))
}
