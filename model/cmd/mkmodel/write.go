package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"capgpu/model"
	"capgpu/model/gguf"
	"capgpu/model/llama2c"
	"capgpu/model/quant"
	"capgpu/model/safetensors"
)

// loudBytes is the size from which progress is reported.
const loudBytes = 32 << 20

// writer writes the files of a model.
type writer struct {
	plan    *model.File
	content quant.Content
	stderr  io.Writer
	bytes   int64 // written
}

func (w *writer) write(o *options) error {
	content := w.progress()
	switch o.format {
	case "llama2c", "llama2c-int8":
		version := 0
		if o.format == "llama2c-int8" {
			version = 2
		}
		tok := strings.TrimSuffix(o.out, filepath.Ext(o.out)) + ".tokenizer.bin"
		if err := w.file(tok, func(f io.Writer) error { return llama2c.WriteTokenizer(f, w.plan.Tokenizer.Spec()) }); err != nil {
			return err
		}
		return w.file(o.out, func(f io.Writer) error { return llama2c.Write(f, w.plan, version, content) })
	case "safetensors":
		if err := os.MkdirAll(o.out, 0o755); err != nil {
			return err
		}
		create := func(name string, put func(f io.Writer) error) error { return w.file(filepath.Join(o.out, name), put) }
		return safetensors.Write(create, w.plan, safetensors.Options{ShardBytes: o.shardBytes}, content)
	}

	return w.file(o.out, func(f io.Writer) error { return gguf.Write(f, w.plan, content) })
}

// progress is the content, with reports if it is large.
func (w *writer) progress() quant.Content {
	total, done := int64(0), int64(0)
	for _, t := range quant.Matrices(&w.plan.Weights) {
		total += int64(t.Bytes())
	}

	if total < loudBytes {
		return w.content
	}

	last := int64(-1)
	return func(t *model.Tensor) (model.Tensor, error) {
		got, err := w.content(t)
		done += int64(len(got.Data))
		if percent := min(100*done/total, 100); percent/10 != last/10 || last < 0 {
			fmt.Fprintf(w.stderr, "%3d%% of %d MB\n", percent, total>>20)
			last = percent
		}
		return got, err
	}
}

// file writes a whole file, or leaves the old one.
func (w *writer) file(path string, put func(f io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()

	if err := put(f); err != nil {
		return err
	}

	st, err := f.Stat()
	if err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}

	w.bytes += st.Size()
	return os.Rename(f.Name(), path)
}
