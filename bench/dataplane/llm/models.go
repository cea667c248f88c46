package llm

import (
	"errors"
	"os"
	"path/filepath"

	"capgpu/model"
	"capgpu/model/load"
	"capgpu/model/quant"
	"capgpu/model/synth"
)

// ErrNoStories means that the real model is missing.
var ErrNoStories = errors.New("stories260K is not there: no shared/models beside the repository, and CAPGPU_MODELS does not name its folder")

const (
	modelsEnv   = "CAPGPU_MODELS"
	storiesFile = "stories260K/stories260K.bin"
)

// Stories opens the real model of 260,000 parameters, which is in shared/models
// beside the repository or in the folder CAPGPU_MODELS. ErrNoStories: it is in
// neither.
func Stories() (*model.File, error) {
	if dir := os.Getenv(modelsEnv); dir != "" {
		return load.Open(filepath.Join(dir, storiesFile))
	}

	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}

	for {
		path := filepath.Join(dir, "..", "shared", "models", storiesFile)
		if exists(filepath.Join(dir, "go.mod")) && exists(path) {
			return load.Open(path)
		}
		up := filepath.Dir(dir)
		if up == dir {
			return nil, ErrNoStories
		}
		dir = up
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// seed is the seed of generated weights.
const seed = 1

// Shaped is a model of seeded weights in one of the shapes of package synth.
func Shaped(shape string) (*model.File, error) {
	o, err := synth.Shape(shape)
	if err != nil {
		return nil, err
	}
	o.Seed = seed
	m, err := synth.New(o)
	if err != nil {
		return nil, err
	}
	return m.File()
}

// Int8 is a model with its matrices in bytes, as checkpoints of llama2.c have them.
func Int8(f *model.File) (*model.File, error) { return quant.Convert(f, model.I8, 0) }

// First is the token that every text begins with.
func First(f *model.File) int32 { return max(f.Tokenizer.BOS(), 0) }
