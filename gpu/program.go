package gpu

import (
	"context"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/internal/revoke"
	"capgpu/ledger"
)

// program is code that a session may launch.
type program struct {
	session *Session
	h       Handle
	node    *revoke.Node
	code    backend.Program
	info    backend.ProgramInfo
	pins    pins // jobs that run it
	charges [2]ledger.Receipt
}

// maxBundleBytes bounds a program bundle.
const maxBundleBytes = 16 << 20

// OpenProgram opens a built-in program of the session's list.
func (s *Session) OpenProgram(name string) (Handle, backend.ProgramInfo, error) {
	if err := s.enter(); err != nil {
		return 0, backend.ProgramInfo{}, err
	}
	defer s.node.Leave()
	if s.facet < FacetProgram {
		return 0, backend.ProgramInfo{}, errNoPrograms
	}
	if !s.mayOpen(name) {
		return 0, backend.ProgramInfo{}, gpuerr.New(gpuerr.NoProgram, "this session has no program %.64q; see Describe", name)
	}
	code, err := s.dev.cfg.Backend.Builtin(name)
	if err != nil {
		return 0, backend.ProgramInfo{}, err
	}
	return s.addProgram(code, 0)
}

// LoadsPrograms says whether LoadProgram can ever succeed for this session.
func (s *Session) LoadsPrograms() bool {
	return s.facet >= FacetFull && s.dev.cfg.Backend.Info().LoadsPrograms
}

// LoadProgram has the device admit a program bundle of the given length. read
// fills it in, once it is charged and it is its turn: one bundle of a device is
// in memory at a time. read copies, so that nobody changes it meanwhile.
func (s *Session) LoadProgram(ctx context.Context, bytes uint64, read func(bundle []byte) error) (Handle, backend.ProgramInfo, error) {
	if err := s.enter(); err != nil {
		return 0, backend.ProgramInfo{}, err
	}
	defer s.node.Leave()
	switch {
	case s.facet < FacetFull:
		return 0, backend.ProgramInfo{}, gpuerr.New(gpuerr.Unimplemented, "this session cannot load programs; open one of its list")
	case !s.LoadsPrograms():
		return 0, backend.ProgramInfo{}, gpuerr.New(gpuerr.Unimplemented, "this device loads no programs; open one of its list")
	case bytes == 0 || bytes > maxBundleBytes:
		return 0, backend.ProgramInfo{}, gpuerr.New(gpuerr.Invalid, "bytes: a bundle has 1 to %d bytes, not %d", maxBundleBytes, bytes)
	}
	// The charge comes before the memory and the work of admitting: a refused
	// client costs nothing.
	return s.chargedProgram(bytes, func() (backend.Program, error) {
		ctx, stop := whileOpen(ctx, s.node.Done())
		defer stop()
		select {
		case s.dev.loading <- struct{}{}:
			defer func() { <-s.dev.loading }()
		case <-ctx.Done():
			return nil, gpuerr.New(gpuerr.Busy, "another program is being loaded; try again")
		}
		bundle := make([]byte, bytes)
		if err := read(bundle); err != nil {
			return nil, err
		}
		return s.dev.cfg.Backend.Load(ctx, bundle)
	})
}

func (s *Session) addProgram(code backend.Program, bytes uint64) (Handle, backend.ProgramInfo, error) {
	return s.chargedProgram(bytes, func() (backend.Program, error) { return code, nil })
}

// chargedProgram charges, then admits, then publishes.
func (s *Session) chargedProgram(bytes uint64, admit func() (backend.Program, error)) (Handle, backend.ProgramInfo, error) {
	if err := s.audited(); err != nil {
		return 0, backend.ProgramInfo{}, err
	}
	p := &program{session: s}
	p.pins.init()
	var err error
	if p.charges[0], err = s.account.Reserve(ledger.Programs, 1); err != nil {
		return 0, backend.ProgramInfo{}, err
	}
	if p.charges[1], err = s.account.Reserve(ledger.ProgramBytes, bytes); err != nil {
		p.release()
		return 0, backend.ProgramInfo{}, err
	}
	if p.code, err = admit(); err != nil {
		p.release()
		return 0, backend.ProgramInfo{}, err
	}
	p.info = p.code.Info()
	p.charges[0].Commit()
	p.charges[1].Commit()
	p.node, err = s.node.NewChild("program", revoke.Ops{Quiesce: p.quiesce, Release: p.release})
	if err != nil {
		p.release()
		return 0, backend.ProgramInfo{}, s.closedError(err)
	}
	if err := s.handles.add(p, func(h Handle) { p.h = h }); err != nil {
		p.node.CloseAsync(err) // not Close: we are inside the session
		return 0, backend.ProgramInfo{}, err
	}
	s.audit("program.open", "program=%#x name=%.64q digest=%x bytes=%d", uint64(p.h), p.info.Name, p.info.Digest[:8], bytes)
	return p.h, p.info, nil
}

// CloseProgram ends a program. Jobs that run it are cancelled and end revoked.
func (s *Session) CloseProgram(h Handle) error {
	if s.facet < FacetProgram {
		return errNoPrograms
	}
	p, err := remove[program](s, h)
	if err != nil {
		return err
	}
	if err := p.node.Close(errDestroyed); err != nil {
		return err
	}
	s.audit("program.close", "program=%#x", uint64(h))
	return nil
}

func (p *program) quiesce() {
	if p.pins.close() {
		p.session.dev.engine.cancel(p.session, func(j *job) bool { return j.program == p }, revokedOutcome)
	}
	<-p.pins.drained
}

func (p *program) release() {
	p.charges[0].Release()
	p.charges[1].Release()
}

var errNoPrograms = gpuerr.New(gpuerr.Unimplemented, "this session has memory, copies and fences only, no programs")
