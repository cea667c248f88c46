package llm

import (
	"bufio"
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"capgpu/model"
	"capgpu/model/llama2c"
)

//go:embed plain/plain.c
var source []byte

// PlainFlags are the compiler flags of the program in C.
const PlainFlags = "-Ofast -march=native"

// Plain is a running program of plain/plain.c.
type Plain struct {
	dir     string
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	said    bytes.Buffer // read after command has ended
}

// StartPlain writes a model as a checkpoint, compiles the program and calls start
// to start it, for example on some CPU. The model's matrices are F32, or I8. The
// caller closes it.
func StartPlain(f *model.File, start func(func() error) error) (_ *Plain, err error) {
	dir, err := os.MkdirTemp("", "capgpu-plain-")
	if err != nil {
		return nil, err
	}

	p := &Plain{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()

	checkpoint, binary := filepath.Join(dir, "model.bin"), filepath.Join(dir, "plain")
	if err := writeCheckpoint(checkpoint, f); err != nil {
		return nil, err
	}

	code := filepath.Join(dir, "plain.c")
	if err := os.WriteFile(code, source, 0o600); err != nil {
		return nil, err
	}

	// These are PlainFlags.
	if out, err := exec.Command("gcc", "-Ofast", "-march=native", "-o", binary, code, "-lm").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("gcc: %w\n%s", err, out)
	}

	command := exec.Command(binary, checkpoint)
	command.Stderr = &p.said
	if p.in, err = command.StdinPipe(); err != nil {
		return nil, err
	}

	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}

	p.out = bufio.NewReader(out)
	if err := start(command.Start); err != nil {
		return nil, err
	}

	p.command = command
	return p, nil
}

func writeCheckpoint(path string, f *model.File) error {
	version := 1
	if f.Weights.Embed.Type == model.I8 {
		version = 2
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(llama2c.Write(file, f, version, nil), file.Close())
}

// Greedy begins a text with a token and fills out with the next ones. The program
// itself reports the time.
func (p *Plain) Greedy(token int32, out []int32) (took time.Duration, err error) {
	if _, err := fmt.Fprintf(p.in, "%d %d\n", len(out), token); err != nil {
		return 0, fmt.Errorf("the program in C: %w", err)
	}
	if _, err := fmt.Fscan(p.out, (*int64)(&took)); err != nil {
		return 0, fmt.Errorf("the program in C: %w", err)
	}
	for i := range out {
		if _, err := fmt.Fscan(p.out, &out[i]); err != nil {
			return 0, fmt.Errorf("the program in C: %w", err)
		}
	}
	return took, nil
}

// Close ends the program, by closing its input, and removes its files.
func (p *Plain) Close() (err error) {
	if p.command != nil {
		_ = p.in.Close() // it may have ended
		if err = p.command.Wait(); err != nil {
			err = fmt.Errorf("the program in C: %w: %s", err, bytes.TrimSpace(p.said.Bytes()))
		}
		p.command = nil
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}
