// Package beside starts this program once more, as a process that reads lines and
// answers with JSON values. It ends with its parent.
package beside

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// Process is such a process, from its parent's side.
type Process struct {
	In  io.WriteCloser // commands; the process ends when it is closed
	Out *json.Decoder  // what it answers

	cmd *exec.Cmd
}

// Start starts this program with these arguments.
func Start(args ...string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}

	p := &Process{cmd: exec.Command(self, args...)}
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if p.In, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}

	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}

	p.Out = json.NewDecoder(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}

	return p, nil
}

// End makes it end by itself, and returns when it is gone.
func (p *Process) End() {
	_ = p.In.Close()
	_ = p.cmd.Wait()
}

// Kill is kill -9, and returns when the process is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.cmd.Wait()
}
