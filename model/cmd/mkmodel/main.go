// Command mkmodel generates a small language model: seeded weights in the shape of
// a real model and a complete vocabulary, as GGUF, a llama2.c checkpoint or a
// folder of Hugging Face's. The same flags make the same bytes on every machine.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"capgpu/model"
	"capgpu/model/synth"
)

const help = `mkmodel - make a small language model up

Usage: go run ./model/cmd/mkmodel -out FILE [flags]

The weights are random numbers of a seed, scaled so that the text that the model writes
is varied. It is nonsense, and it is always the same: a model for tests, figures and
machines without a real one. Every text can be tokenized and comes back as it was.

  go run ./model/cmd/mkmodel -out m.gguf
  go run ./model/cmd/mkmodel -out m.gguf -shape 15m -type q8_0
  go run ./model/cmd/mkmodel -out m.bin  -shape 15m -format llama2c-int8
  go run ./model/cmd/mkmodel -out m      -shape tiny -format safetensors -type bf16

Formats:
  gguf          one file
  llama2c       FILE and, beside it, NAME.tokenizer.bin; version 0 of the format
  llama2c-int8  the same, version 2: signed bytes and a scale for each group
  safetensors   a folder: model.safetensors, config.json, tokenizer.json

Flags (0: as the shape has it):
`

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "mkmodel:", err)
		os.Exit(1)
	}
}

// options are the parsed flags.
type options struct {
	synth.Options
	out, format string
	shardBytes  int64
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("mkmodel", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprint(stderr, help)
		fs.PrintDefaults()
	}

	shape := fs.String("shape", "tiny", "sizes to begin with: "+strings.Join(synth.Shapes(), ", "))
	typ := fs.String("type", "f32", "how matrices are stored: f32, f16, bf16, q8_0, q4_0")
	var sizes synth.Options
	fs.StringVar(&o.out, "out", "", "file or folder to make; replaced if it is there")
	fs.StringVar(&o.format, "format", "gguf", "gguf, llama2c, llama2c-int8, safetensors")
	fs.Uint64Var(&sizes.Seed, "seed", 1, "another seed is another model")
	fs.StringVar(&sizes.Name, "name", "", "the model's name, for GGUF")
	fs.IntVar(&sizes.Dim, "dim", 0, "elements of an embedding")
	fs.IntVar(&sizes.Hidden, "hidden", 0, "elements between the projections of a block")
	fs.IntVar(&sizes.Layers, "layers", 0, "blocks")
	fs.IntVar(&sizes.Heads, "heads", 0, "heads of attention; they divide dim")
	fs.IntVar(&sizes.KVHeads, "kv-heads", 0, "heads of keys and values; they divide heads")
	fs.IntVar(&sizes.Vocab, "vocab", 0, "tokens; 260 at least")
	fs.IntVar(&sizes.Context, "context", 0, "positions")
	fs.IntVar(&sizes.Group, "group", 0, "elements of a scale, for llama2c-int8; 0: the most that fit, up to 64")
	arch := fs.String("arch", "llama", "family of models, as GGUF names it: llama, qwen2, qwen3, gemma, gemma2, gemma3, phi3")
	tied := fs.String("tied", "", "true or false: the classifier is the table of embeddings; \"\": as the shape has it")
	fs.BoolVar(&sizes.ByteLevel, "byte-level", false, "the vocabulary is byte-level BPE, as Llama 3's, and not SentencePiece")
	fs.Int64Var(&o.shardBytes, "shard-bytes", 0, "bytes of tensors in each file of safetensors; 0: one file")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 || o.out == "" {
		return o, fmt.Errorf("say what to make: -out FILE; -help tells the flags")
	}
	if o.Options, err = synth.Shape(*shape); err != nil {
		return o, err
	}

	override(&o.Options, &sizes)
	if o.Arch, err = archOf(*arch); err != nil {
		return o, err
	}
	switch *tied {
	case "":
	case "true", "false":
		o.Tied = *tied == "true"
	default:
		return o, fmt.Errorf("tied: %q is not true or false", *tied)
	}

	return o, o.setType(*typ)
}

func archOf(name string) (model.Arch, error) {
	for a := range model.Archs {
		if a.String() == name {
			return a, nil
		}
	}
	return 0, fmt.Errorf("arch: %q is no family of models", name)
}

// override replaces the sizes of the shape by the given ones.
func override(o, given *synth.Options) {
	for _, f := range []struct{ to, from *int }{
		{&o.Dim, &given.Dim}, {&o.Hidden, &given.Hidden}, {&o.Layers, &given.Layers}, {&o.Heads, &given.Heads},
		{&o.KVHeads, &given.KVHeads}, {&o.Vocab, &given.Vocab}, {&o.Context, &given.Context}, {&o.Group, &given.Group},
	} {
		if *f.from != 0 {
			*f.to = *f.from
		}
	}
	if given.Name != "" {
		o.Name = given.Name
	}
	o.Seed, o.ByteLevel = given.Seed, given.ByteLevel
}

// setType finds the type of the matrices, which the format may decide.
func (o *options) setType(name string) error {
	found := false
	for t := model.F32; t <= model.Q4_0; t++ {
		if t.String() == name {
			o.Type, found = t, true
		}
	}

	if !found {
		return fmt.Errorf("type: %q is none of f32, f16, bf16, q8_0, q4_0", name)
	}

	only := func(types ...model.Type) error {
		for _, t := range types {
			if o.Type == t {
				return nil
			}
		}
		return fmt.Errorf("type: %s is not of the format %s", o.Type, o.format)
	}

	switch o.format {
	case "gguf":
		return nil
	case "llama2c":
		return only(model.F32)
	case "llama2c-int8":
		if err := only(model.F32); err != nil { // the flag was not given
			return err
		}
		o.Type = model.I8
		return nil
	case "safetensors":
		o.Rope = model.RopeHalves
		return only(model.F32, model.F16, model.BF16)
	}

	return fmt.Errorf("format: %q is none of gguf, llama2c, llama2c-int8, safetensors", o.format)
}

func run(args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}

	m, err := synth.New(o.Options)
	if err != nil {
		return err
	}

	w := &writer{plan: m.Plan, content: m.Content, stderr: stderr}
	if err := w.write(&o); err != nil {
		return err
	}

	c := &m.Plan.Config
	fmt.Fprintf(stdout, "%s: %s, dim %d, %d layers, %d heads (%d of keys and values), %d tokens, %d positions, %s, %d bytes\n",
		o.out, o.format, c.Dim, c.Layers, c.Heads, c.KVHeads, c.Vocab, c.Context, o.Type, w.bytes)

	return nil
}
