package neighbour

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

const hidden = "dataplane-neighbour"

// Process is a neighbour, seen from its parent. It keeps still at first.
type Process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// Start starts a neighbour with the sockets of one or more tenants. It uses the next one
// when it is banned.
func Start(m Manner, sockets ...string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.Command(self, append([]string{hidden, string(m)}, sockets...)...)}
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

// Begin has it behave as it does, and returns when it has begun.
func (p *Process) Begin() error {
	_, err := p.say("begin")
	return err
}

// Stop has it keep still, and returns when it does: nothing of its work is under way.
func (p *Process) Stop() (Report, error) { return p.say("stop") }

func (p *Process) say(word string) (r Report, err error) {
	if _, err := fmt.Fprintln(p.in, word); err != nil {
		return r, fmt.Errorf("a neighbour has ended: %w", err)
	}
	if err := p.out.Decode(&r); err != nil {
		return r, fmt.Errorf("a neighbour has ended: %w", err)
	}
	if r.Err != "" {
		return r, fmt.Errorf("a neighbour: %s", r.Err)
	}
	return r, nil
}

// Kill is kill -9, and returns when the process is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.cmd.Wait()
}
