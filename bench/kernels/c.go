package main

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

//go:embed loops/loops.c
var source []byte

// cLoops is a running program of loops.c.
type cLoops struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

// startC compiles loops.c in dir and starts it on memory. The caller closes it.
func startC(memory *memory, dir, name string, flags ...string) (*cLoops, error) {
	file, binary := filepath.Join(dir, "loops.c"), filepath.Join(dir, name)
	if err := os.WriteFile(file, source, 0o600); err != nil {
		return nil, err
	}

	arguments := append([]string{"-O3", "-march=native"}, flags...)
	compile := exec.Command("gcc", append(arguments, "-o", binary, file)...)
	if out, err := compile.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("gcc: %w\n%s", err, out)
	}

	c := &cLoops{command: exec.Command(binary)}
	c.command.Stderr = os.Stderr
	c.command.ExtraFiles = []*os.File{memory.file} // becomes descriptor 3
	in, err := c.command.StdinPipe()
	if err != nil {
		return nil, err
	}

	out, err := c.command.StdoutPipe()
	if err != nil {
		return nil, err
	}

	c.in, c.out = in, bufio.NewReader(out)
	return c, c.command.Start()
}

// Close ends the program, which does so when its input ends.
func (c *cLoops) Close() {
	_ = c.in.Close()
	_ = c.command.Wait()
}

// loop is one of its loops.
func (c *cLoops) loop(name string) side {
	return func(n int) time.Duration {
		var took int64
		if _, err := fmt.Fprintf(c.in, "%s %d\n", name, n); err != nil {
			fail(name, err)
		}
		if _, err := fmt.Fscanln(c.out, &took); err != nil {
			fail(name, err)
		}
		return time.Duration(took)
	}
}

func fail(loop string, err error) {
	fmt.Fprintf(os.Stderr, "kernels: the C loop %s: %v\n", loop, err)
	os.Exit(1)
}
