package gguf

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/model"
	"capgpu/model/load/loadtest"
	"capgpu/model/quant"
)

// inFiles is a model in several files.
func inFiles(t testing.TB, f *model.File, n int) [][]byte {
	t.Helper()
	buffers, writers := make([]bytes.Buffer, n), make([]io.Writer, n)
	for i := range buffers {
		writers[i] = &buffers[i]
	}
	require.NoError(t, WriteSplit(writers, f, nil))
	files := make([][]byte, n)
	for i := range buffers {
		files[i] = buffers[i].Bytes()
	}
	return files
}

func TestSplit(t *testing.T) {
	f := blocks(t)
	files := inFiles(t, f, 3)
	for i, data := range files {
		count, no, err := Splits(data)
		require.NoError(t, err)
		require.Equal(t, []int{3, i}, []int{count, no})
	}

	got, err := Load(files...)
	require.NoError(t, err)
	require.Equal(t, f.Weights, got.Weights)
	require.Len(t, quant.Matrices(&got.Weights), 16)
}

// Files that do not belong together are refused by name.
func TestSplitLies(t *testing.T) {
	files := inFiles(t, loadtest.Tiny(t, model.F32), 3)
	with := func(i int, from, to string) [][]byte {
		out := append([][]byte(nil), files...)
		require.Contains(t, string(out[i]), from)
		out[i] = bytes.Replace(out[i], []byte(from), []byte(to), 1)
		return out
	}

	word := "\x04\x00\x00\x00"
	for name, c := range map[string]struct {
		files [][]byte
		want  string
	}{
		"order":   {[][]byte{files[0], files[2], files[1]}, "file 2 of 3: E_INVALID: split.no: is file 3 of 3 where file 2 of 3 is needed"},
		"one":     {files[:1], "split.no: is file 1 of 3 where file 1 of 1 is needed"},
		"missing": {files[:2], "where file 1 of 2 is needed"},
		"twice":   {with(2, "blk.0.ffn_up.weight", "blk.0.attn_q.weight"), "tensor blk.0.attn_q.weight: is in another file too"},
		"total":   {with(0, "split.tensors.count"+word+"\x0b", "split.tensors.count"+word+"\x0c"), "split.tensors.count: 12, and the files have 11"},
		"no":      {with(1, "split.no"+word+"\x01", "split.no"+word+"\x07"), "split.no: is missing, or not below the 3"},
		"many":    {with(2, "split.count"+word+"\x03\x00", "split.count"+word+"\x03\x80"), "split.count: 32771 files are more than 1024"},
	} {
		size := 0
		for _, data := range c.files {
			size += len(data)
		}
		err := loadtest.Load(t, size, 64, func() (*model.File, error) { return Load(c.files...) })
		require.ErrorContains(t, err, c.want, name)
	}
}

func FuzzSplit(f *testing.F) {
	files := inFiles(f, loadtest.Tiny(f, model.F32), 2)
	f.Add(files[0], files[1])
	f.Fuzz(func(t *testing.T, a, b []byte) {
		_ = loadtest.Load(t, len(a)+len(b), 64, func() (*model.File, error) { return Load(a, b) })
	})
}
