package load

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/model/mapped"
	"capgpu/model/safetensors"
	"capgpu/model/tokenizer"
)

// folder returns the folder of a model of safetensors, if path is one or a file of
// one.
func folder(path string) (string, bool) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return path, true
	}
	base := filepath.Base(path)
	if strings.HasSuffix(base, ".safetensors") || base == safetensors.IndexFile || base == safetensors.ConfigFile {
		return filepath.Dir(path), true
	}
	return "", false
}

// openFolder opens a model of safetensors.
func openFolder(dir string) (f *model.File, err error) {
	p := safetensors.Parts{Shards: map[string][]byte{}}
	for _, part := range []struct {
		name string
		to   *[]byte
		most int
		must bool
	}{
		{safetensors.ConfigFile, &p.Config, safetensors.MaxConfig, true},
		{safetensors.TokenizerFile, &p.Tokenizer, tokenizer.MaxJSON, true},
		{safetensors.IndexFile, &p.Index, safetensors.MaxConfig, false},
		{safetensors.TokenizerConfigFile, &p.TokenizerConfig, safetensors.MaxConfig, false},
		{safetensors.GenerationFile, &p.Generation, safetensors.MaxConfig, false},
		{safetensors.TemplateFile, &p.Template, safetensors.MaxConfig, false},
	} {
		b, err := mapped.ReadFile(filepath.Join(dir, part.name), part.most)
		switch {
		case err == nil:
			*part.to = b
		case !errors.Is(err, os.ErrNotExist):
			return nil, err
		case part.must:
			return nil, gpuerr.New(gpuerr.Invalid, "%s: is no folder of a model: it has no %s", dir, part.name)
		}
	}

	names := []string{safetensors.SingleFile}
	if p.Index != nil {
		if names, err = safetensors.Shards(p.Index); err != nil {
			return nil, err
		}
	}

	var open []*mapped.File
	closeAll := func() error {
		var first error
		for _, m := range open {
			if err := m.Close(); first == nil {
				first = err
			}
		}
		return first
	}

	defer func() {
		if err != nil {
			closeAll()
		}
	}()

	for _, name := range names {
		m, err := mapped.Open(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		open = append(open, m)
		p.Shards[name] = m.Bytes()
	}

	err = mapped.Guard(func() (err error) {
		f, err = safetensors.Load(p)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}

	f.Name = filepath.Base(dir)
	return model.NewFile(*f, closeAll), nil
}
