package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/internal/leakcheck"
	"capgpu/model"
	"capgpu/model/load"
	"capgpu/model/modeltest"
	"capgpu/model/tokenizer"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

func mk(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	require.NoError(t, run(args, &out, &errs), errs.String())
	return out.String()
}

// Each format of the same model, opened, is the same model.
func TestFormats(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	mk(t, "-out", at("m.gguf"), "-seed", "7", "-layers", "1")
	mk(t, "-out", at("m.bin"), "-seed", "7", "-layers", "1", "-format", "llama2c")
	mk(t, "-out", at("m8.bin"), "-seed", "7", "-layers", "1", "-format", "llama2c-int8")
	mk(t, "-out", at("hf"), "-seed", "7", "-layers", "1", "-format", "safetensors")
	mk(t, "-out", at("sharded"), "-seed", "7", "-layers", "1", "-format", "safetensors", "-type", "bf16", "-shard-bytes", "50000")
	mk(t, "-out", at("q8.gguf"), "-seed", "7", "-layers", "1", "-type", "q8_0")

	first, err := load.Open(at("m.gguf"))
	require.NoError(t, err)
	defer first.Close()
	require.Equal(t, "synth-tiny", first.Name)
	for name, allowed := range map[string]float64{"m.bin": 0, "m8.bin": 0.5, "hf": -1, "hf/config.json": -1, "sharded": -1, "q8.gguf": 0.5} {
		f, err := load.Open(at(name))
		require.NoError(t, err, name)
		text := "There was a cat,\n\U0001F408!"
		require.Equal(t, first.Tokenizer.Encode(text, tokenizer.Encode{}), f.Tokenizer.Encode(text, tokenizer.Encode{}), name)
		want, have := first.Config, f.Config
		if allowed < 0 {
			require.Equal(t, model.RopeHalves, have.Rope)
			have.Rope = want.Rope
		}

		require.Equal(t, want, have, name)
		if allowed >= 0 { // safetensors orders the same rows differently: another model of the same seed
			a, err := modeltest.New(first)
			require.NoError(t, err)
			b, err := modeltest.New(f)
			require.NoError(t, err)
			diff, _ := modeltest.MaxDiff(a.Step(1, 0), b.Step(1, 0))
			require.LessOrEqual(t, diff, allowed, name)
		}

		require.NoError(t, f.Close())
	}

	left, err := filepath.Glob(at(".*"))
	require.NoError(t, err)
	require.Empty(t, left, "files that were not finished")
}

func TestDeterministic(t *testing.T) {
	dir := t.TempDir()
	a, b, c := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")
	require.Contains(t, mk(t, "-out", a), "gguf, dim 64, 2 layers")
	mk(t, "-out", b)
	mk(t, "-out", c, "-seed", "2")
	read := func(path string) []byte {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		return data
	}
	require.True(t, bytes.Equal(read(a), read(b)))
	require.False(t, bytes.Equal(read(a), read(c)))
}

func TestRefuses(t *testing.T) {
	for name, args := range map[string][]string{
		"-out FILE": {},
		"shape":     {"-out", "x", "-shape", "huge"},
		"type":      {"-out", "x", "-type", "q6_k"},
		"of the":    {"-out", "x", "-type", "q8_0", "-format", "safetensors"},
		"format":    {"-out", "x", "-format", "onnx"},
		"tied":      {"-out", "x", "-tied", "maybe"},
		"heads":     {"-out", "x", "-heads", "7"},
		"no such":   {"-out", filepath.Join(t.TempDir(), "none", "x")},
	} {
		var out, errs bytes.Buffer
		require.ErrorContains(t, run(args, &out, &errs), name)
		require.Empty(t, out.String())
	}

	var out, errs bytes.Buffer
	require.Error(t, run([]string{"-help"}, &out, &errs))
	require.True(t, strings.HasPrefix(errs.String(), "mkmodel - "))
	require.Contains(t, errs.String(), "-shape")
}
