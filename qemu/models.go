package qemu

import (
	"bytes"
	_ "embed"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"capgpu/model/gguf"
	"capgpu/model/synth"
)

// The guest's model server continues guestPrompt by guestTokens tokens, the most likely each
// time.
const (
	guestPrompt = "Once"
	guestTokens = 64
)

// madeUpText is the answer of guestModels' made-up model: a test holds it to an independent
// float64 implementation.
//
//go:embed testdata/made-up.txt
var madeUpText []byte

// madeUp is a model that every clone can make, the same everywhere.
func madeUp() (*synth.Model, error) {
	o, err := synth.Shape("tiny")
	if err != nil {
		return nil, err
	}
	o.Name, o.Seed = "made-up", 7
	return synth.New(o)
}

// guestModels are models and the texts that they must write, in the guest's folder
// models: NAME.gguf and NAME.txt, and NAME.prompt where it is not empty. Besides the
// made-up one there is stories260K, where it lies beside the repository (../shared/models,
// or CAPGPU_MODELS).
func guestModels(repo string, logf func(format string, args ...any)) ([]File, error) {
	made, err := madeUp()
	if err != nil {
		return nil, err
	}

	var b bytes.Buffer
	if err := gguf.Write(&b, made.Plan, made.Content); err != nil {
		return nil, err
	}

	files := []File{
		{Path: "models/made-up.gguf", Mode: 0o644, Content: b.Bytes()},
		{Path: "models/made-up.txt", Mode: 0o644, Content: madeUpText},
		{Path: "models/made-up.prompt", Mode: 0o644, Content: []byte(guestPrompt)},
	}
	dir := os.Getenv("CAPGPU_MODELS")
	given := dir != ""
	if !given {
		dir = filepath.Join(repo, "..", "shared", "models")
	}

	dir = filepath.Join(dir, "stories260K")
	for from, to := range map[string]string{
		"stories260Ktok512.gguf":     "stories260K.gguf",
		"ref/stories260K.t0.n64.txt": "stories260K.txt",
	} {
		content, err := os.ReadFile(filepath.Join(dir, from))
		if errors.Is(err, fs.ErrNotExist) && !given {
			logf("SKIPPED: there is no stories260K in %s: the guest's model server has the made-up model only", dir)
			return files[:3], nil
		}
		if err != nil {
			return nil, err
		}
		files = append(files, File{Path: "models/" + to, Mode: 0o644, Content: content})
	}

	return files, nil
}
