package churn

import (
	"encoding/json"
	"fmt"
	"strconv"

	"capgpu/bench/dataplane/beside"
)

// Process is a worker, seen from its parent.
type Process struct{ process *beside.Process }

// Start starts a worker.
func Start(socket string, seed uint64, size Size) (*Process, error) {
	text, err := json.Marshal(size)
	if err != nil {
		return nil, err
	}
	p, err := beside.Start(hidden, socket, strconv.FormatUint(seed, 10), string(text))
	if err != nil {
		return nil, err
	}
	return &Process{p}, nil
}

// Begin asks for n operations, without waiting.
func (p *Process) Begin(n int) error {
	_, err := fmt.Fprintln(p.process.In, n)
	return err
}

// Await waits until the operations are done, and returns the worker's holdings
// then.
func (p *Process) Await() (h Holds, err error) {
	if err := p.process.Out.Decode(&h); err != nil {
		return h, fmt.Errorf("a worker has ended: %w", err)
	}
	if h.Err != "" {
		return h, fmt.Errorf("a worker: %s", h.Err)
	}
	return h, nil
}

// End makes the worker close everything, and returns its holdings then: none.
func (p *Process) End() (Holds, error) {
	if _, err := fmt.Fprintln(p.process.In, "end"); err != nil {
		return Holds{}, err
	}
	h, err := p.Await()
	p.process.End()
	return h, err
}

// Kill is kill -9, and returns when the process is gone.
func (p *Process) Kill() { p.process.Kill() }
