package llama2c_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/model"
	"capgpu/model/llama2c"
	"capgpu/model/load/loadtest"
	"capgpu/model/synth"
)

func loadLie(t testing.TB, data []byte) error {
	t.Helper()
	return loadtest.Load(t, len(data), 8, func() (*model.File, error) { return llama2c.Load(data) })
}

func of(t testing.TB, version int) []byte {
	t.Helper()
	return written(t, small(t, func(o *synth.Options) { o.Type, o.Layers = typeOf(version), 1 }), version)
}

// A file that was truncated anywhere, or is too long, is an error that names the
// part.
func TestTruncated(t *testing.T) {
	for version := range 3 {
		data := of(t, version)
		for n := range data {
			require.Error(t, loadLie(t, data[:n:n]))
		}
		require.ErrorContains(t, loadLie(t, append(bytes.Clone(data), 0)), "file: has ")
	}
	data := of(t, 0)
	require.ErrorContains(t, loadLie(t, data[:28+100]), "token_embedding_table: ends at byte")
	require.ErrorContains(t, loadLie(t, data[:len(data)-1]), "freq_cis: ends at byte")
	require.ErrorContains(t, loadLie(t, data[:28+260*16*4+16*4+10]), "wq of layer 0: ends at byte")
}

func TestEveryByte(t *testing.T) {
	for version := range 3 {
		data := of(t, version)
		for at := range 48 {
			was := data[at]
			for lie := range 256 {
				data[at] = byte(lie)
				_ = loadLie(t, data)
			}
			data[at] = was
		}
		require.NoError(t, loadLie(t, data))
	}
}

// set writes words into a copy of a file.
func set(data []byte, at int, words ...int32) []byte {
	data = bytes.Clone(data)
	for i, w := range words {
		binary.LittleEndian.PutUint32(data[at+4*i:], uint32(w))
	}
	return data
}

func TestLies(t *testing.T) {
	v0, v1, v2 := of(t, 0), of(t, 1), of(t, 2)
	for _, lie := range []struct {
		data []byte
		want string
	}{
		{nil, "header: 0 bytes"},
		{set(v0, 0, 0), "dim: 0 is not within"},
		{set(v0, 0, -16), "dim: -16 is not within"},
		{set(v0, 0, math.MaxInt32), "dim: 2147483647 is not within"},
		{set(v0, 4, 1<<18), "w1 of layer 0: ends at byte"},
		{set(v0, 4, 1<<19), "hidden_dim: 524288 is not within"},
		{set(v0, 8, 1024), "n_layers: 1024 layers"},
		{set(v0, 8, math.MinInt32), "n_layers: -2147483648 is not within"},
		{set(v0, 12, 3), "n_heads: 3 do not divide dim 16"},
		{set(v0, 12, 16), "headDim: 1 is odd"},
		{set(v0, 16, 3), "kvHeads: 3 do not divide"},
		{set(v0, 20, 0), "vocab_size: 0 is not within"},
		{set(v0, 20, math.MinInt32), "vocab_size: -2147483648 is not within"},
		{set(v0, 20, -260), "wcls: ends at byte"},
		{set(v0, 20, 1<<20), "token_embedding_table: ends at byte"},
		{set(v0, 24, 1<<20), "freq_cis: ends at byte"},
		{set(v0, 0, 1<<16, 1<<18, 1024, 1024, 1024, 1<<20, 1<<20), "n_layers: 1024 layers of dim 65536"},
		{set(v1, 4, 3), "version: 3 is not supported"},
		{set(v1, 4, -1), "version: 4294967295"},
		{set(v1, 36, 2), "shared_classifier: 2"},
		{set(v1, 36, 0), "wcls: ends at byte"},
		{v1[:200], "header: 200 bytes"},
		{set(v2, 37, 0), "group_size: 0"},
		{set(v2, 37, -8), "group_size: -8"},
		{set(v2, 37, 3), "group_size: 3 does not divide"},
		{set(v2, 37, 4), ": ends at byte"}, // more scales
	} {
		require.ErrorContains(t, loadLie(t, lie.data), lie.want)
	}
}

func FuzzLoad(f *testing.F) {
	for version := range 3 {
		data := written(f, loadtest.Tiny(f, typeOf(version)), version)
		require.NoError(f, loadLie(f, data))
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { _ = loadLie(t, data) })
}
