package modeltest

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// Stories is the folder of the stories260K model: its files and, in ref, its
// reference answers. It is shared/models beside the repository, or CAPGPU_MODELS.
// If it is missing, the test is skipped; with CAPGPU_MODELS set, the test fails.
func Stories(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("CAPGPU_MODELS"); dir != "" {
		stories := filepath.Join(dir, "stories260K")
		if _, err := os.Stat(filepath.Join(stories, "stories260K.bin")); err != nil {
			t.Fatalf("CAPGPU_MODELS is %s: %v", dir, err)
		}
		return stories
	}

	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}

	for {
		stories := filepath.Join(dir, "..", "shared", "models", "stories260K")
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			if _, err := os.Stat(filepath.Join(stories, "stories260K.bin")); err == nil {
				return stories
			}
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Skip("SKIPPED: the stories260K model is not there: no shared/models beside the repository, and CAPGPU_MODELS is not set")
		}
		dir = up
	}
}

// StoriesText is one of the reference texts, "t0.n64": the temperature and the number of
// steps; or "prompt1.t0.n128".
func StoriesText(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(Stories(t), "ref", "stories260K."+name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// StoriesLogits is the reference logits of the first 64 steps of the greedy text, one
// row of 512 for each.
func StoriesLogits(t testing.TB) [][]float32 {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(Stories(t), "ref", "stories260K.t0.n64.logits.f32"))
	if err != nil {
		t.Fatal(err)
	}

	const vocab = 512
	rows := make([][]float32, len(b)/4/vocab)
	for i := range rows {
		rows[i] = make([]float32, vocab)
		for j := range rows[i] {
			rows[i][j] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*(i*vocab+j):]))
		}
	}

	if len(rows) != 64 {
		t.Fatalf("the reference has %d rows of logits, not 64", len(rows))
	}

	return rows
}

// StoriesPrompts are texts and their reference tokens, beginning included.
func StoriesPrompts(t testing.TB) map[string][]int32 {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(Stories(t), "ref", "stories260K.prompt_token_ids.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	return parsePrompts(t, string(b))
}
