package neighbour

import (
	"fmt"

	"capgpu/bench/dataplane/beside"
)

const hidden = "dataplane-neighbour"

// Process is a neighbour, from its parent's side. It is idle at first.
type Process struct{ process *beside.Process }

// Start starts a neighbour with the sockets of one or more tenants. It uses the
// next one when it is banned.
func Start(m Manner, sockets ...string) (*Process, error) {
	p, err := beside.Start(append([]string{hidden, string(m)}, sockets...)...)
	if err != nil {
		return nil, err
	}
	return &Process{p}, nil
}

// Begin starts its behaviour, and returns when it has begun.
func (p *Process) Begin() error {
	_, err := p.say("begin")
	return err
}

// Stop stops its behaviour, and returns when nothing of its work is in progress.
func (p *Process) Stop() (Report, error) { return p.say("stop") }

func (p *Process) say(word string) (r Report, err error) {
	if _, err := fmt.Fprintln(p.process.In, word); err != nil {
		return r, fmt.Errorf("a neighbour has ended: %w", err)
	}
	if err := p.process.Out.Decode(&r); err != nil {
		return r, fmt.Errorf("a neighbour has ended: %w", err)
	}
	if r.Err != "" {
		return r, fmt.Errorf("a neighbour: %s", r.Err)
	}
	return r, nil
}

// Kill is kill -9, and returns when the process is gone.
func (p *Process) Kill() { p.process.Kill() }
