package gguf_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/model"
	"capgpu/model/gguf"
	"capgpu/model/load/loadtest"
	"capgpu/model/synth"
)

// times bounds the bytes allocated for each byte of a file; the tokenizer decides
// it.
const times = 64

func loadLie(t testing.TB, data []byte) error {
	t.Helper()
	return loadtest.Load(t, len(data), times, func() (*model.File, error) { return gguf.Load(data) })
}

// front is the length of the part before the tensors' data.
func front(t testing.TB, data []byte) int {
	t.Helper()
	h, err := gguf.Parse(data)
	require.NoError(t, err)
	first := h.Tensors[0].Data
	at := bytes.Index(data, first)
	require.Positive(t, at)
	return at
}

// A file that was truncated anywhere, except in the padding at its end, is an
// error.
func TestTruncated(t *testing.T) {
	data := written(t, loadtest.Tiny(t, model.F32))
	for n := range len(data) - 32 {
		require.Error(t, loadLie(t, data[:n:n]), "%d of %d bytes", n, len(data))
	}
}

// Any change of any byte of the front is harmless.
func TestEveryByte(t *testing.T) {
	data := written(t, loadtest.Tiny(t, model.F32))
	end, refused := front(t, data), 0
	for at := range end {
		was := data[at]
		for _, lie := range []byte{0, 1, 2, 0x7F, 0x80, 0xFF, was + 1, was - 1, was ^ 0x20} {
			data[at] = lie
			if loadLie(t, data) != nil {
				refused++
			}
		}
		data[at] = was
	}
	require.Greater(t, refused, end, "lies are found")
	require.NoError(t, loadLie(t, data))
}

// file assembles a file by hand.
type file struct{ bytes.Buffer }

func newFile(version uint32, tensors, entries uint64) *file {
	f := &file{}
	f.WriteString("GGUF")
	return f.u32(version).u64(tensors).u64(entries)
}

func (f *file) u32(v uint32) *file {
	f.Write(binary.LittleEndian.AppendUint32(nil, v))
	return f
}

func (f *file) u64(v uint64) *file {
	f.Write(binary.LittleEndian.AppendUint64(nil, v))
	return f
}

func (f *file) text(s string) *file {
	f.u64(uint64(len(s)))
	f.WriteString(s)
	return f
}

// pad makes the file so long that its length alone does not expose a count.
func (f *file) pad(n int) *file {
	f.Write(make([]byte, n))
	return f
}

// Counts, lengths and types that lie, with enough room behind them.
func TestLies(t *testing.T) {
	const room = 4096
	nested := newFile(3, 0, 1).text("k").u32(9)
	for range 6 {
		nested.u32(9).u64(1)
	}

	for name, lie := range map[string]struct {
		f    *file
		want string
	}{
		"empty":            {&file{}, "magic: "},
		"version":          {newFile(1, 0, 0), "version: 1"},
		"bigEndian":        {newFile(0x03000000, 0, 0), "big-endian"},
		"manyTensors":      {newFile(3, math.MaxUint64, 0).pad(room), "tensor count: "},
		"manyEntries":      {newFile(3, 0, math.MaxUint64).pad(room), "metadata count: "},
		"tensorsThanBytes": {newFile(3, 500, 0).pad(room), "tensor count: "},
		"entriesThanBytes": {newFile(3, 0, 500).pad(room), "metadata count: "},
		"longKey":          {newFile(3, 0, 1).u64(1 << 40).pad(room), "a key of the metadata: "},
		"keyBeyond":        {newFile(3, 0, 1).u64(5000).pad(room), "a key of the metadata: "},
		"noKey":            {newFile(3, 0, 1).text("").u32(4).u32(1).pad(room), "entry 0"},
		"keyTwice":         {newFile(3, 0, 2).text("k").u32(4).u32(1).text("k").u32(4).u32(1).pad(room), "k: is there twice"},
		"valueType":        {newFile(3, 0, 1).text("k").u32(13).pad(room), "k: there is no type 13"},
		"stringBeyond":     {newFile(3, 0, 1).text("k").u32(8).u64(1 << 62).pad(room), "k: "},
		"arrayOfBytes":     {newFile(3, 0, 1).text("k").u32(9).u32(0).u64(1 << 62).pad(room), "k: "},
		"arrayOverflows":   {newFile(3, 0, 1).text("k").u32(9).u32(10).u64(1<<61 + 1).pad(room), "k: "},
		"arrayOfStrings":   {newFile(3, 0, 1).text("k").u32(9).u32(8).u64(1 << 60).pad(room), "k: "},
		"arrayOfNothing":   {newFile(3, 0, 1).text("k").u32(9).u32(77).u64(3).pad(room), "k: there is no type 77"},
		"nested":           {nested.pad(room), "deeper than 4"},
		"alignment0":       {newFile(3, 0, 1).text("general.alignment").u32(4).u32(0).pad(room), "general.alignment: 0"},
		"alignment24":      {newFile(3, 0, 1).text("general.alignment").u32(4).u32(24).pad(room), "general.alignment: 24"},
		"alignmentHuge":    {newFile(3, 0, 1).text("general.alignment").u32(4).u32(1 << 31).pad(room), "general.alignment: "},
		"alignmentText":    {newFile(3, 0, 1).text("general.alignment").u32(8).text("32").pad(room), "general.alignment: is of type 8"},
		"alignmentBelow0":  {newFile(3, 0, 1).text("general.alignment").u32(5).u32(0xFFFFFFE0).pad(room), "general.alignment: -32 is negative"},
		"tensorName":       {newFile(3, 1, 0).text(strings.Repeat("x", 65)).pad(room), "a name of a tensor: "},
		"noTensorName":     {newFile(3, 1, 0).text("").pad(room), "tensor 0: has no name"},
		"noDims":           {newFile(3, 1, 0).text("t").u32(0).pad(room), "tensor t: 0 dimensions"},
		"manyDims":         {newFile(3, 1, 0).text("t").u32(5).pad(room), "tensor t: 5 dimensions"},
		"dim0":             {newFile(3, 1, 0).text("t").u32(1).u64(0).u32(0).u64(0).pad(room), "tensor t: dimensions"},
		"dimsOverflow":     {newFile(3, 1, 0).text("t").u32(2).u64(1 << 32).u64(1 << 32).u32(0).u64(0).pad(room), "tensor t: dimensions"},
		"dimsAreLarge":     {newFile(3, 1, 0).text("t").u32(2).u64(1 << 31).u64(1 << 31).u32(0).u64(0).pad(room), "tensor t: "},
		"blocks":           {newFile(3, 1, 0).text("t").u32(1).u64(33).u32(8).u64(0).pad(room), "tensor t: rows of 33"},
		"offset":           {newFile(3, 1, 0).text("t").u32(1).u64(1).u32(0).u64(4).pad(room), "tensor t: offset 4"},
		"offsetBeyond":     {newFile(3, 1, 0).text("t").u32(1).u64(1).u32(0).u64(1 << 20).pad(room), "tensor t: 4 bytes at offset 1048576"},
		"offsetOverflows":  {newFile(3, 1, 0).text("t").u32(1).u64(64).u32(0).u64(math.MaxUint64 - 31).pad(room), "tensor t: 256 bytes"},
		"tensorTwice":      {newFile(3, 2, 0).text("t").u32(1).u64(1).u32(0).u64(0).text("t").u32(1).u64(1).u32(0).u64(32).pad(room), "tensor t: is there twice"},
		"overlap":          {newFile(3, 2, 0).text("t").u32(1).u64(9).u32(0).u64(0).text("u").u32(1).u64(1).u32(0).u64(32).pad(room), "tensor u: lies over tensor t"},
		"noArchitecture":   {newFile(3, 0, 0).pad(room), "general.architecture: is missing"},
		"gpt2":             {newFile(3, 0, 1).text("general.architecture").u32(8).text("gpt2").pad(room), "\"gpt2\" is not supported, llama, qwen2, qwen3, gemma, gemma2, gemma3, phi3 are: it needs learned positions"},
		"unknown":          {newFile(3, 0, 1).text("general.architecture").u32(8).text("x").pad(room), "\"x\" is not supported, llama, qwen2, qwen3, gemma, gemma2, gemma3, phi3 are: it is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			err := loadLie(t, lie.f.Bytes())
			require.ErrorContains(t, err, lie.want)
		})
	}
}

// with is a small model's file with some of its metadata changed: nil removes a
// key.
func with(t testing.TB, changes map[string]any) []byte {
	t.Helper()
	data := written(t, small(t, nil))
	h, err := gguf.Parse(data)
	require.NoError(t, err)
	return gguf.Rewrite(t, h, changes)
}

// Metadata that does not fit the tensors, or that would change the result.
func TestMetadata(t *testing.T) {
	require.NoError(t, loadLie(t, with(t, nil)))
	for _, lie := range []struct {
		key   string
		value any
		want  string
	}{
		{"llama.block_count", nil, "llama.block_count: is missing"},
		{"llama.block_count", uint32(2), "llama.block_count: 2 layers"},
		{"llama.block_count", uint32(5000), "llama.block_count: 5000"},
		{"llama.block_count", "many", "llama.block_count: is of type 8"},
		{"llama.embedding_length", uint32(64), "tensor "},
		{"llama.feed_forward_length", uint32(96), "tensor blk.0.ffn_gate.weight: dimensions"},
		{"llama.feed_forward_length", []uint32{64, 64}, ""},
		{"llama.feed_forward_length", []uint32{64, 32}, "llama.feed_forward_length: differs"},
		{"llama.context_length", uint32(1 << 30), "llama.context_length: "},
		{"llama.context_length", uint32(0), "context: 0"},
		{"llama.attention.head_count", uint32(0), "llama.attention.head_count: 0"},
		{"llama.attention.head_count", uint32(4), "tensor "},
		{"llama.attention.head_count_kv", uint32(2), "tensor blk.0.attn_k.weight: dimensions"},
		{"llama.attention.key_length", uint32(8), "llama.attention.value_length: 16"},
		{"llama.rope.dimension_count", uint32(8), "llama.rope.dimension_count: 8"},
		{"llama.vocab_size", uint32(300), "llama.vocab_size: 300"},
		{"llama.attention.layer_norm_rms_epsilon", nil, "layer_norm_rms_epsilon: is missing"},
		{"llama.attention.layer_norm_rms_epsilon", float32(math.NaN()), "normEps: "},
		{"llama.rope.freq_base", float32(0), "ropeBase: "},
		{"llama.rope.scaling.type", "yarn", "llama.rope.scaling.type: \"yarn\""},
		{"llama.rope.scaling.type", "none", ""},
		{"llama.rope.scale_linear", float32(-1), "llama.rope.scale_linear: -1"},
		{"llama.rope.scale_linear", float32(4), ""},
		{"llama.expert_count", uint32(8), "llama.expert_count: 8 is not supported"},
		{"llama.expert_count", uint32(0), ""},
		{"split.count", uint32(3), "split.no: is missing"},
		{"split.count", uint32(1), ""},
		{"llama.attention.causal", false, "llama.attention.causal: false"},
		{"tokenizer.ggml.model", nil, "tokenizer.ggml.model: is missing"},
		{"tokenizer.ggml.model", "bert", "tokenizer.ggml.model: \"bert\""},
		{"tokenizer.ggml.tokens", nil, "tokenizer.ggml.tokens: is missing"},
		{"tokenizer.ggml.tokens", uint32(1), "tokenizer.ggml.tokens: is of type 4"},
		{"tokenizer.ggml.scores", []float32{1, 2}, "tokenizer.ggml.scores: has 2 elements for 260 tokens"},
		{"tokenizer.ggml.scores", []uint32{1, 2}, "tokenizer.ggml.scores: is an array of type 4"},
		{"tokenizer.ggml.scores", nil, ""},
		{"tokenizer.ggml.token_type", make([]int32, 260), ""},
		{"tokenizer.ggml.token_type", append(make([]int32, 259), 9), "token 259 is of type 9"},
		{"tokenizer.ggml.token_type", append(make([]int32, 259), -1), "token 259 is of type"},
		{"tokenizer.ggml.token_type", nil, ""},
		{"tokenizer.ggml.bos_token_id", uint32(260), "tokenizer.ggml.bos_token_id: 260"},
		{"tokenizer.ggml.bos_token_id", uint32(math.MaxUint32), ""},
		{"tokenizer.ggml.add_bos_token", uint32(1), "tokenizer.ggml.add_bos_token: is of type 4"},
		{"tokenizer.chat_template", "{{ x }}", ""},
		{"tokenizer.chat_template", strings.Repeat("x", 1<<20+1), "tokenizer.chat_template: "},
		{"general.name", uint32(1), "general.name: is of type 4"},
	} {
		err := loadLie(t, with(t, map[string]any{lie.key: lie.value}))
		if lie.want == "" {
			require.NoError(t, err, "%s %v", lie.key, lie.value)
		} else {
			require.ErrorContains(t, err, lie.want)
		}
	}
}

// A stretch of all positions becomes factors of each pair.
func TestLinear(t *testing.T) {
	for _, change := range []map[string]any{
		{"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": float32(4)},
		{"llama.rope.scale_linear": float32(4)},
	} {
		f, err := gguf.Load(with(t, change))
		require.NoError(t, err)
		require.Equal(t, 8, f.Weights.RopeFactors.Cols)
		for i := range 8 {
			require.Equal(t, float32(4), math.Float32frombits(binary.LittleEndian.Uint32(f.Weights.RopeFactors.Data[4*i:])))
		}
	}
}

// An unknown tensor, and one of an unsupported type, are refused by name.
func TestTensors(t *testing.T) {
	data := written(t, small(t, nil))
	swap := func(from, to string) []byte {
		require.Len(t, to, len(from))
		return bytes.Replace(bytes.Clone(data), []byte(from), []byte(to), 1)
	}
	require.ErrorContains(t, loadLie(t, swap("blk.0.attn_q.weight", "blk.0.attn_q.weighs")), "tensor blk.0.attn_q.weight: is missing")
	require.ErrorContains(t, loadLie(t, swap("blk.0.attn_q.weight", "blk.0.attn_k.weight")), "tensor blk.0.attn_k.weight: is there twice")

	untied := written(t, small(t, func(o *synth.Options) { o.Tied = false }))
	biased := bytes.Replace(untied, []byte("\x0d\x00\x00\x00\x00\x00\x00\x00output.weight"), []byte("\x0d\x00\x00\x00\x00\x00\x00\x00output.bias-y"), 1)
	require.ErrorContains(t, loadLie(t, biased), "tensor output.bias-y: is not of a llama model")

	at := bytes.Index(data, []byte("blk.0.attn_q.weight")) + len("blk.0.attn_q.weight") + 4 + 2*8
	data[at] = 16
	require.ErrorContains(t, loadLie(t, data), "tensor blk.0.attn_q.weight: type iq2_xxs is not supported")
	data[at] = 12
	require.ErrorContains(t, loadLie(t, data), "tensor blk.0.attn_q.weight: rows of 32 elements are no whole blocks of q4_k, which have 256")
	data[at] = 99
	require.ErrorContains(t, loadLie(t, data), "tensor blk.0.attn_q.weight: type 99 is not supported")
}

// Files full of the smallest possible items.
func TestCrowded(t *testing.T) {
	entries := newFile(3, 0, 60000)
	for i := range uint32(60000) {
		entries.text(string(binary.LittleEndian.AppendUint32(nil, i))).u32(0).WriteByte(1)
	}
	require.ErrorContains(t, loadLie(t, entries.Bytes()), "general.architecture: is missing")

	tensors := newFile(3, 60000, 1).text("general.architecture").u32(8).text("llama")
	for i := range uint32(60000) {
		tensors.text(string(binary.LittleEndian.AppendUint32(nil, i))).u32(1).u64(1).u32(0).u64(0)
	}
	require.ErrorContains(t, loadLie(t, tensors.pad(64).Bytes()), ": lies over tensor")

	tokens := newFile(3, 0, 3).text("general.architecture").u32(8).text("llama").text("tokenizer.ggml.model").u32(8).text("llama").
		text("tokenizer.ggml.tokens").u32(9).u32(8).u64(1 << 20).pad(8 << 20)
	require.ErrorContains(t, loadLie(t, tokens.Bytes()), "llama.embedding_length: is missing")
}

func FuzzLoad(f *testing.F) {
	data := written(f, loadtest.Tiny(f, model.F32))
	require.NoError(f, loadLie(f, data))
	f.Add(data)
	f.Add(written(f, loadtest.Tiny(f, model.BF16)))
	for arch := model.Qwen2; arch < model.Archs; arch++ {
		f.Add(written(f, loadtest.TinyOf(f, arch, model.F32)))
	}
	f.Add(newFile(3, 1, 1).text("k").u32(9).u32(8).u64(2).text("a").text("b").text("t").u32(1).u64(1).u32(0).u64(0).pad(64).Bytes())
	f.Fuzz(func(t *testing.T, data []byte) { _ = loadLie(t, data) })
}
