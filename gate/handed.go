package gate

import (
	"context"

	"capnproto.org/go/capnp/v3"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/schema"
)

// A session may pass a program on to sessions restricted from it. They cannot load
// programs, but may run this one. Such a session opens the program once, in its own
// name, and keeps it until the program itself is closed.

// programArgument returns the program behind a capability, for use in this session.
func (s *session) programArgument(ctx context.Context, c schema.GpuProgram, field string) (*client.Program, error) {
	p, err := rpcguard.Local[*program](capnp.Client(c), field)
	if err != nil {
		return nil, err
	}
	if p.s == s {
		return p.code, nil
	}
	if !s.isBelow(p.s) {
		return nil, gpuerr.New(gpuerr.Invalid, "%s: a program of another session, which this one was not restricted from", field)
	}

	s.mu.Lock()
	code := s.handed[p]
	s.mu.Unlock()
	if code != nil {
		return code, nil
	}

	return s.openHanded(ctx, p)
}

func (s *session) isBelow(above *session) bool {
	for at := s.parent; at != nil; at = at.parent {
		if at == above {
			return true
		}
	}
	return false
}

func (s *session) openHanded(ctx context.Context, p *program) (*client.Program, error) {
	code, err := s.client.OpenProgram(ctx, p.code.Reference())
	if err != nil {
		return nil, err
	}

	s.mu.Lock()
	first, again := s.handed[p]
	if !again {
		s.handed[p] = code
	}

	s.mu.Unlock()
	if again { // two calls at once
		_ = code.Close(ctx)
		return first, nil
	}

	p.mu.Lock()
	open := p.runners != nil
	if open {
		p.runners[s] = struct{}{}
	}

	p.mu.Unlock()
	if !open {
		s.endHanded(ctx, p)
		return nil, gpuerr.New(gpuerr.Closed, "the program was closed")
	}

	return code, nil
}

// endHanded closes the program in all sessions below that have opened it.
func (p *program) endHanded(ctx context.Context) {
	p.mu.Lock()
	runners := p.runners
	p.runners = nil
	p.mu.Unlock()
	for s := range runners {
		s.endHanded(ctx, p)
	}
}

func (s *session) endHanded(ctx context.Context, p *program) {
	s.mu.Lock()
	code := s.handed[p]
	delete(s.handed, p)
	s.mu.Unlock()
	if code != nil {
		_ = code.Close(ctx) // it ends with its session at the latest
	}
}
