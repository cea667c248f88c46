package gpu

import (
	"context"
	"strings"
	"sync"
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/internal/revoke"
	"capgpu/ledger"
	nouns "capgpu/program"
)

// program is code that a session may launch.
//
// One that was loaded can be opened again, by its digest, in its session and those
// restricted from it; what was opened so ends with it (source).
type program struct {
	session *Session
	h       Handle
	node    *revoke.Node
	code    backend.Program
	info    *backend.ProgramInfo
	pins    pins // jobs that run it
	lists   listSet
	charges [2]ledger.Receipt
	loaded  bool
	source  *program // has the code; nil: it is this one's own, or the device's

	// name of a built-in one and bundle of a loaded one are for a successor (snapshot.go).
	name   string
	bundle []byte
	took   time.Duration // to load

	mu sync.Mutex
	// opened are the programs with this one as source; nil once it is closing.
	// +checklocks:mu
	opened map[*program]struct{}
}

// loadedPrograms finds what a session has loaded by digest. The zero value is empty.
type loadedPrograms struct {
	mu sync.Mutex
	// +checklocks:mu
	byDigest map[[32]byte][]*program
}

// OpenProgram opens a program by its name: a built-in one of the session's list,
// or by its digest one that this session or one above it has loaded.
func (s *Session) OpenProgram(name string) (Handle, *backend.ProgramInfo, error) {
	if err := s.enterToWork(); err != nil {
		return 0, nil, err
	}
	defer s.node.Leave()
	if s.facet < FacetProgram {
		return 0, nil, errNoPrograms
	}
	if strings.HasPrefix(name, nouns.DigestPrefix) {
		return s.openLoaded(name)
	}
	if !s.mayOpen(name) {
		return 0, nil, gpuerr.New(gpuerr.NoProgram, "this session has no program %.64q; see Describe", name)
	}
	code, err := s.dev.cfg.Backend.Builtin(name)
	if err != nil {
		return 0, nil, err
	}
	p := &program{session: s, name: name}
	return s.chargedProgram(p, 0, func() (backend.Program, error) { return code, nil })
}

// openLoaded opens what is loaded here or above. The code is charged to the session that
// loaded it; here it is one program more.
func (s *Session) openLoaded(name string) (Handle, *backend.ProgramInfo, error) {
	source := s.findLoaded(name)
	if source == nil {
		return 0, nil, gpuerr.New(gpuerr.NoProgram, "neither this session nor one that it was restricted from has loaded %.80q, or the programs that it may open are others", name)
	}
	p := &program{session: s, source: source}
	return s.chargedProgram(p, 0, func() (backend.Program, error) { return source.code, nil })
}

// findLoaded looks upwards. A session with a list of programs of its own, which names
// others, sees nothing of those above.
func (s *Session) findLoaded(name string) *program {
	digest, ok := nouns.ParseDigest(name)
	if !ok {
		return nil
	}
	for at := s; at != nil; at = at.parent {
		if p := at.loaded.find(digest); p != nil {
			return p
		}
		if at.listed && !at.mayOpen(name) {
			return nil
		}
	}
	return nil
}

func (l *loadedPrograms) find(digest [32]byte) *program {
	l.mu.Lock()
	defer l.mu.Unlock()
	if all := l.byDigest[digest]; len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

func (l *loadedPrograms) add(p *program) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byDigest == nil {
		l.byDigest = map[[32]byte][]*program{}
	}
	l.byDigest[p.info.Digest] = append(l.byDigest[p.info.Digest], p)
}

func (l *loadedPrograms) remove(p *program) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.byDigest[p.info.Digest]
	for i, other := range all {
		if other == p {
			all[i] = all[len(all)-1]
			all[len(all)-1] = nil
			all = all[:len(all)-1]
			break
		}
	}
	if l.byDigest[p.info.Digest] = all; len(all) == 0 {
		delete(l.byDigest, p.info.Digest)
	}
}

// chargedProgram charges, then admits, then publishes.
func (s *Session) chargedProgram(p *program, bytes uint64, admit func() (backend.Program, error)) (Handle, *backend.ProgramInfo, error) {
	if err := s.audited(); err != nil {
		return 0, nil, err
	}
	p.pins.init()
	ctx, stop := context.WithTimeout(context.Background(), reclaimPatience) // for both
	defer stop()
	var err error
	if p.charges[0], err = s.reserve(ctx, ledger.Programs, 1); err != nil {
		return 0, nil, err
	}
	if p.charges[1], err = s.reserve(ctx, ledger.ProgramBytes, bytes); err != nil {
		p.refund()
		return 0, nil, err
	}
	if p.code, err = admit(); err != nil {
		p.refund()
		return 0, nil, err
	}
	p.info = p.code.Info()
	p.mu.Lock()
	p.opened = map[*program]struct{}{}
	p.mu.Unlock()
	p.charges[0].Commit()
	p.charges[1].Commit()
	p.node, err = s.node.NewChild("program", revoke.Ops{Quiesce: p.quiesce, Release: p.release})
	if err != nil {
		p.giveBack()
		p.refund()
		return 0, nil, s.closedError(err)
	}
	if p.source != nil && !p.source.derive(p) {
		p.node.CloseAsync(errDestroyed)
		return 0, nil, gpuerr.New(gpuerr.NoProgram, "the program is being closed by who loaded it")
	}
	if p.loaded {
		s.loaded.add(p)
	}
	if err := s.handles.Add(p, func(h Handle) { p.h = h }); err != nil {
		p.node.CloseAsync(err) // not Close: we are inside the session
		return 0, nil, err
	}
	s.audit("program.open", "program=%#x name=%.64q digest=%x bytes=%d", uint64(p.h), p.info.Name, p.info.Digest[:8], bytes)
	return p.h, p.info, nil
}

// derive notes a program that is opened from this one. It is false when this one
// is being closed.
func (p *program) derive(opened *program) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.opened == nil {
		return false
	}
	p.opened[opened] = struct{}{}
	return true
}

// CloseProgram ends a program, and those opened from it. Jobs that run it are
// cancelled and end revoked.
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

var errSourceClosed = gpuerr.New(gpuerr.Revoked, "the program was closed by who loaded it")

// quiesce returns when no job runs the program, nor one opened from it. It may be
// called more than once.
func (p *program) quiesce() {
	if p.loaded {
		p.session.loaded.remove(p)
	}
	p.mu.Lock()
	opened := p.opened
	p.opened = nil
	p.mu.Unlock()
	for other := range opened {
		other.quiesce()
		// Not Close: the same closer may have both, and waits for this one.
		other.node.CloseAsync(errSourceClosed)
	}
	p.pins.close()
	if p.node == nil || !p.node.ClosedByParent() { // else nothing runs that could have it, nor will
		p.session.cancelAll(func(j *job) bool { return j.program == p })
	}
	<-p.pins.drained
	p.lists.kill()
}

// release comes when no job runs the program, nor one opened from it.
func (p *program) release() {
	p.giveBack()
	if s := p.source; s != nil {
		s.mu.Lock()
		delete(s.opened, p)
		s.mu.Unlock()
	}
	p.refund()
}

// giveBack tells the backend that what it loaded is used no more.
func (p *program) giveBack() {
	if r, ok := p.code.(backend.Releaser); ok && p.loaded {
		r.Release()
	}
}

func (p *program) refund() {
	p.charges[0].Release()
	p.charges[1].Release()
}

var errNoPrograms = gpuerr.New(gpuerr.Unimplemented, "this session has memory, copies and fences only, no programs")
