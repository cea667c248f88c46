package client

import (
	"context"
	"errors"
	"strings"
	"time"

	"capgpu/control"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/program"
)

// Fence is a 64-bit timeline. A point on it is reached once, with one outcome,
// and never changes.
type Fence struct {
	s      *Session
	handle uint64
}

// CreateFence makes a fence that stands at initial.
func (s *Session) CreateFence(ctx context.Context, initial uint64) (*Fence, error) {
	m, err := s.create(ctx, control.TypeCreateFence, control.TypeDestroyFence, control.CreateFenceRequest{Initial: initial}.AppendTo(nil))
	if err != nil {
		return nil, err
	}
	r, err := control.ParseHandleBody(m.Body)
	if err != nil {
		return nil, err
	}
	f := &Fence{s: s, handle: r.Handle}
	if err := s.adopt(f); err != nil {
		return nil, err
	}
	return f, nil
}

// Handle is the fence's number in the session.
func (f *Fence) Handle() uint64 { return f.handle }

// State tells where the fence stands.
func (f *Fence) State(ctx context.Context) (FenceState, error) {
	m, err := f.s.call(ctx, control.TypeFenceState, control.HandleBody{Handle: f.handle}.AppendTo(nil))
	if err != nil {
		return FenceState{}, err
	}
	return f.parseState(m.Body)
}

// Wait waits until the fence has reached value and returns that point's outcome.
// When ctx ends first it returns a pending outcome and ctx's error.
func (f *Fence) Wait(ctx context.Context, value uint64) (outcome.Outcome, error) {
	for {
		st, err := f.wait(ctx, value, waitSlice)
		if err != nil || st.Outcome.Kind != outcome.Pending {
			return st.Outcome, err
		}
	}
}

// WaitFor is Wait with the time limit as a result: when timeout is over it
// returns a state with a pending Outcome, and no error.
func (f *Fence) WaitFor(ctx context.Context, value uint64, timeout time.Duration) (FenceState, error) {
	end := time.Now().Add(timeout)
	for {
		left := time.Until(end)
		st, err := f.wait(ctx, value, max(0, min(left, waitSlice)))
		if err != nil || st.Outcome.Kind != outcome.Pending || left <= waitSlice {
			return st, err
		}
	}
}

// waitSlice is the longest that one request waits at the service. A caller that
// gives up leaves the request behind; this bounds for how long it then occupies
// one of the session's 64 places there.
const waitSlice = 5 * time.Second

// maxWaits is how many waits of one session the service lets wait at once;
// further ones queue here.
const maxWaits = 32

// busyPause is how long a wait that finds no place pauses: those that were given
// up still hold theirs, for waitSlice at most.
const busyPause = 20 * time.Millisecond

func (f *Fence) wait(ctx context.Context, value uint64, timeout time.Duration) (FenceState, error) {
	select {
	case f.s.waits <- struct{}{}:
	case <-f.s.done:
		return FenceState{}, f.s.Err()
	case <-ctx.Done():
		return FenceState{}, ctx.Err()
	}
	defer func() { <-f.s.waits }()
	req := control.FenceWaitRequest{Handle: f.handle, Value: value}
	for end := time.Now().Add(timeout); ; {
		left := max(0, time.Until(end))
		req.TimeoutNanos = uint64(left)
		m, err := f.s.call(ctx, control.TypeFenceWait, req.AppendTo(nil))
		if err == nil {
			return f.parseState(m.Body)
		}
		if !errors.Is(err, gpuerr.Busy) || left == 0 { // no place is needed to look once
			return FenceState{}, err
		}
		if err := f.s.pause(ctx, min(left, busyPause)); err != nil {
			return FenceState{}, err
		}
	}
}

// pause returns after d, or sooner with what ended the session or ctx.
func (s *Session) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-s.done:
		return s.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *Fence) parseState(body []byte) (FenceState, error) {
	r, err := control.ParseFenceState(body)
	if err != nil {
		return FenceState{}, err
	}
	f.s.noticePoison(r.Outcome)
	return FenceState{Reached: r.Reached, Promised: r.Promised, Outcome: r.Outcome}, nil
}

// Signal advances the fence from the client's side. value must exceed every value
// that was promised before.
func (f *Fence) Signal(ctx context.Context, value uint64) error {
	_, err := f.s.call(ctx, control.TypeFenceSignal, control.FenceSignalRequest{Handle: f.handle, Value: value}.AppendTo(nil))
	return err
}

// Close ends the fence, and wakes the callers that wait for it.
func (f *Fence) Close(ctx context.Context) error {
	if !f.s.disown(f) {
		return nil
	}
	return f.s.destroy(ctx, control.TypeDestroyFence, f.handle)
}

func (f *Fence) release() {}

// Program is code that the session may launch.
type Program struct {
	s      *Session
	handle uint64
	info   ProgramInfo
	loaded bool
}

// OpenProgram opens a program of the device by name; Description.Programs lists
// them. By its digest (Digest.String) it opens one that this session, or one that
// it was restricted from, has loaded and not closed.
func (s *Session) OpenProgram(ctx context.Context, name string) (*Program, error) {
	if len(name) > control.MaxStringBytes {
		return nil, gpuerr.New(gpuerr.NoProgram, "a program's name has at most %d bytes", control.MaxStringBytes)
	}
	m, err := s.create(ctx, control.TypeOpenProgram, control.TypeCloseProgram, control.OpenProgramRequest{Name: name}.AppendTo(nil))
	if err != nil {
		return nil, err
	}
	return s.newProgram(m.Body, strings.HasPrefix(name, program.DigestPrefix))
}

// LoadProgram hands a program bundle of at most MaxBundleBytes to the device,
// which admits it or says where it is not in the profile (gpuerr.Program). The
// bundle travels in a buffer of the session, which is charged meanwhile.
func (s *Session) LoadProgram(ctx context.Context, bundle []byte) (*Program, error) {
	if len(bundle) == 0 || len(bundle) > MaxBundleBytes {
		return nil, gpuerr.New(gpuerr.Invalid, "bundle has %d bytes; 1 to %d are possible", len(bundle), MaxBundleBytes)
	}
	b, err := s.CreateBuffer(ctx, uint64(len(bundle)), Upload)
	if err != nil {
		return nil, err
	}
	// Also when ctx has ended: what is left of it then goes with the session.
	defer b.Close(context.WithoutCancel(ctx))
	if _, err := b.WriteAt(bundle, 0); err != nil {
		return nil, err
	}
	m, err := s.create(ctx, control.TypeLoadProgram, control.TypeCloseProgram, control.LoadProgramRequest{Buffer: b.handle, Bytes: uint64(len(bundle))}.AppendTo(nil))
	if err != nil {
		return nil, err
	}
	return s.newProgram(m.Body, true)
}

// MaxBundleBytes is the largest bundle that the service takes.
const MaxBundleBytes = program.MaxBundleBytes

func (s *Session) newProgram(body []byte, loaded bool) (*Program, error) {
	r, err := control.ParseProgramReply(body)
	if err != nil {
		return nil, err
	}
	p := &Program{s: s, handle: r.Handle, info: programInfo(r.Info), loaded: loaded}
	if err := s.adopt(p); err != nil {
		return nil, err
	}
	return p, nil
}

// Handle is the program's number in the session.
func (p *Program) Handle() uint64 { return p.handle }

// Info is what a launch is checked against.
func (p *Program) Info() ProgramInfo { return p.info }

// Reference is what a session restricted from this one opens the program by
// (OpenProgram): its digest, or the name of a built-in one.
func (p *Program) Reference() string {
	if p.loaded {
		return p.info.Digest.String()
	}
	return p.info.Name
}

// Close ends the program; its queued work ends as revoked.
func (p *Program) Close(ctx context.Context) error {
	if !p.s.disown(p) {
		return nil
	}
	return p.s.destroy(ctx, control.TypeCloseProgram, p.handle)
}

func (p *Program) release() {}
