package churn

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"

	"golang.org/x/sys/unix"
)

// Process is a worker, seen from its parent.
type Process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// Start starts a worker.
func Start(socket string, seed uint64, size Size) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(size)
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.Command(self, hidden, socket, strconv.FormatUint(seed, 10), string(text))}
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = json.NewDecoder(out)
	return p, p.cmd.Start()
}

// Begin asks for n operations, without waiting.
func (p *Process) Begin(n int) error {
	_, err := fmt.Fprintln(p.in, n)
	return err
}

// Await waits until the operations are done, and tells what the worker holds then.
func (p *Process) Await() (h Holds, err error) {
	if err := p.out.Decode(&h); err != nil {
		return h, fmt.Errorf("a worker has ended: %w", err)
	}
	if h.Err != "" {
		return h, fmt.Errorf("a worker: %s", h.Err)
	}
	return h, nil
}

// End has the worker close everything, and returns what it then holds: nothing.
func (p *Process) End() (Holds, error) {
	if _, err := fmt.Fprintln(p.in, "end"); err != nil {
		return Holds{}, err
	}
	h, err := p.Await()
	_ = p.in.Close() // it ends
	_ = p.cmd.Wait()
	return h, err
}

// Kill is kill -9, and returns when the process is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.cmd.Wait()
}
