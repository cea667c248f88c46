package synth_test

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/model/modeltest"
	"capgpu/model/quant"
	"capgpu/model/synth"
	"capgpu/model/tokenizer"
)

func shape(t testing.TB, name string) synth.Options {
	t.Helper()
	o, err := synth.Shape(name)
	require.NoError(t, err)
	o.Seed = 1
	return o
}

func whole(t testing.TB, o synth.Options) *model.File {
	t.Helper()
	m, err := synth.New(o)
	require.NoError(t, err)
	f, err := m.File()
	require.NoError(t, err)
	return f
}

// A generated model's text is varied and depends on its beginning and its seed, and
// at no position are all tokens nearly equally likely.
func TestTextIsVaried(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{"tiny", "260k"} {
		for _, tied := range []bool{false, true} {
			for seed := range uint64(2) {
				for _, typ := range []model.Type{model.F32, model.Q4_0} {
					if name == "260k" && typ != model.F32 {
						continue
					}

					o := shape(t, name)
					o.Tied, o.Seed, o.Type = tied, seed, typ
					f := whole(t, o)
					r, err := modeltest.New(f)
					require.NoError(t, err)
					tokens, logits := r.Greedy([]int32{1}, 96)
					count, last := map[int32]int{}, map[int32]bool{}
					for i, id := range tokens {
						count[id]++
						if i >= len(tokens)-32 {
							last[id] = true
						}
					}

					most := 0
					for _, n := range count {
						most = max(most, n)
					}

					t.Logf("%s tied %t seed %d %s: %d tokens, %d different, %d of the last 32, most often %d; %.60q", name, tied, seed, typ, len(tokens), len(count), len(last), most, modelText(f, tokens))
					require.Greater(t, len(tokens), 24)
					require.Greater(t, len(count), len(tokens)/4)
					require.Less(t, most, max(len(tokens)/4, 8))
					require.Greater(t, len(last), 6, "it does not go round for ever")
					text := modelText(f, tokens)
					require.False(t, seen[text])
					seen[text] = true
					low, high := logits[5][0], logits[5][0]
					for _, x := range logits[5] {
						low, high = min(low, x), max(high, x)
					}

					require.Greater(t, high-low, 5.0)
					require.Less(t, high-low, 60.0)
				}
			}
		}
	}
}

func modelText(f *model.File, tokens []int32) string {
	var b strings.Builder
	for _, id := range tokens {
		b.Write(f.Tokenizer.Piece(id))
	}
	return b.String()
}

// The bytes of a generated model never change, because figures and references
// depend on them.
func TestTheBytesStay(t *testing.T) {
	f := whole(t, shape(t, "tiny"))
	h := sha256.New()
	for _, m := range quant.Matrices(&f.Weights) {
		h.Write(m.Data)
	}
	h.Write(f.Weights.Norm.Data)
	require.Equal(t, "c4cb76648f3744685cff196a45875c1da1bcc639d177a03fbaa1a7316e487e95", hex.EncodeToString(h.Sum(nil)))
}

func TestVocabularies(t *testing.T) {
	for _, bytes := range []bool{false, true} {
		for _, vocab := range []int{260, 300, 512, 5000, 32000} {
			o := shape(t, "tiny")
			o.ByteLevel, o.Vocab = bytes, vocab
			m, err := synth.New(o)
			require.NoError(t, err)
			tok := m.Plan.Tokenizer
			require.Equal(t, vocab, tok.Vocab())
			seen := map[string]bool{}
			for _, p := range tok.Spec().Pieces {
				require.False(t, seen[string(p.Text)], "%q twice", p.Text)
				seen[string(p.Text)] = true
			}

			for _, text := range []string{"Once upon a time there was a little girl", "çà 漢字 \U0001F600\n\ttab", "a  b   c\x00\x7F", "don't 12345 stop!"} {
				ids := tok.Encode(text, tokenizer.Encode{})
				d := tok.Decoder(ids[:1]...)
				var got string
				for _, id := range ids[1:] {
					got += d.Add(id)
				}
				require.Equal(t, text, got+d.Flush(), "vocab %d", vocab)
				require.True(t, utf8.ValidString(got))
			}

			if vocab >= 512 {
				require.Less(t, len(tok.Encode(" the and the and the", tokenizer.Encode{})), 8, "words are merged")
			}
		}
	}
}

func TestRefuses(t *testing.T) {
	for name, change := range map[string]func(o *synth.Options){
		"heads:":   func(o *synth.Options) { o.Heads = 3 },
		"kvHeads:": func(o *synth.Options) { o.KVHeads = 3 },
		"vocab:":   func(o *synth.Options) { o.Vocab = 259 },
		"layers:":  func(o *synth.Options) { o.Layers = 0 },
	} {
		o := shape(t, "tiny")
		change(&o)
		_, err := synth.New(o)
		require.ErrorIs(t, err, gpuerr.Invalid)
		require.ErrorContains(t, err, name)
	}
	_, err := synth.Shape("huge")
	require.ErrorContains(t, err, "tiny, 260k, 15m, 42m, 110m")
}
