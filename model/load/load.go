package load

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/model/llama2c"
	"capgpu/model/mapped"
	"capgpu/model/tokenizer"
)

const maxTokenizer = 64 << 20 // bytes of a llama2.c tokenizer

// Options of OpenWith.
type Options struct {
	// Tokenizer is the file with the tokenizer of a llama2.c checkpoint. "" takes
	// the first of NAME.tokenizer.bin, tok<vocab>.bin and tokenizer.bin that lies
	// beside it.
	Tokenizer string
}

// Open is OpenWith without options.
func Open(path string) (*model.File, error) { return OpenWith(path, Options{}) }

// OpenWith opens a model. It returns gpuerr.IO if the host refuses, and
// gpuerr.Invalid if the file is wrong; the message names the file and the part.
func OpenWith(path string, o Options) (*model.File, error) {
	if dir, ok := folder(path); ok {
		return openFolder(dir)
	}

	m, err := mapped.Open(path)
	if err != nil {
		return nil, err
	}

	open := splits{files: []*mapped.File{m}}
	var f *model.File
	err = mapped.Guard(func() error {
		var err error
		if data := m.Bytes(); strings.HasPrefix(string(data[:min(4, len(data))]), "GGUF") {
			f, err = open.load(path)
		} else {
			f, err = checkpoint(path, data, o)
		}
		return err
	})
	if err != nil {
		open.close()
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	if f.Name == "" {
		f.Name = stem(path)
	}

	return model.NewFile(*f, open.close), nil
}

// stem is a file's name without folder and extension.
func stem(path string) string {
	base := filepath.Base(path)
	if s := strings.TrimSuffix(base, filepath.Ext(base)); s != "" {
		return s
	}
	return base
}

// checkpoint opens a model of llama2.c with the tokenizer beside it.
func checkpoint(path string, data []byte, o Options) (*model.File, error) {
	f, err := llama2c.Load(data)
	switch {
	case err == nil:
	case llama2c.Is(data) || llama2c.Plausible(data):
		return nil, fmt.Errorf("llama2.c: %w", err)
	default:
		return nil, gpuerr.New(gpuerr.Invalid, "is not a model: neither GGUF, nor llama2.c's, nor a folder of safetensors (as llama2.c's: %s)", gpuerr.From(err).Msg)
	}

	names := []string{o.Tokenizer}
	if o.Tokenizer == "" {
		names = nil
		for _, name := range []string{stem(path) + ".tokenizer.bin", fmt.Sprintf("tok%d.bin", f.Config.Vocab), "tokenizer.bin"} {
			names = append(names, filepath.Join(filepath.Dir(path), name))
		}
	}

	for _, name := range names {
		bin, err := mapped.ReadFile(name, maxTokenizer)
		if errors.Is(err, os.ErrNotExist) && o.Tokenizer == "" {
			continue
		}
		if err != nil {
			return nil, err
		}
		if f.Tokenizer, err = tokenizer.FromLlama2c(bin, f.Config.Vocab); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(name), err)
		}
		return f, nil
	}

	return nil, gpuerr.New(gpuerr.Invalid, "tokenizer: none of %s is there; name one", strings.Join(names, ", "))
}
