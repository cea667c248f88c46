package manager

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"capgpu/control"
	"capgpu/gpuerr"
)

// planAsker answers, on one connection of an operator, which changes a policy file would
// make.
type planAsker struct {
	m *Manager

	mu sync.Mutex
	// +checklocks:mu
	text []byte // parts of the file so far
}

func (p *planAsker) handle(ctx context.Context, m *control.Message) *control.Message {
	req, err := control.ParsePlanRequest(m.Body)
	if err != nil {
		return control.ErrorReply(m, err)
	}

	text, err := p.take(req)
	if err != nil {
		return control.ErrorReply(m, err)
	}
	if req.More {
		return control.NewReply(m, nil)
	}

	next, err := p.m.cfg.Parse(text)
	if err != nil {
		return control.ErrorReply(m, gpuerr.New(gpuerr.Invalid, "%v", err))
	}

	changes, err := p.m.Plan(ctx, next)
	switch {
	case errors.Is(err, gpuerr.Disconnected): // the manager stops
		return control.ErrorReply(m, err)
	case err != nil:
		return control.ErrorReply(m, gpuerr.New(gpuerr.Invalid, "%v", err))
	}

	reply, err := json.Marshal(changes)
	if err != nil {
		return control.ErrorReply(m, gpuerr.New(gpuerr.Internal, "describe what would change: %v", err))
	}

	return control.NewReply(m, reply)
}

// take adds a part. It returns the file when the part is the last.
func (p *planAsker) take(req control.PlanRequest) (text []byte, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.text)+len(req.Text) > maxPolicyBytes {
		p.text = nil
		return nil, gpuerr.New(gpuerr.Invalid, "the policy is longer than %d bytes", maxPolicyBytes)
	}
	p.text = append(p.text, req.Text...)
	if req.More {
		return nil, nil
	}
	text, p.text = p.text, nil
	return text, nil
}
