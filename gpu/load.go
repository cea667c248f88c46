package gpu

import (
	"context"
	"slices"
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpu/handles"
	"capgpu/gpu/heap"
	"capgpu/gpuerr"
	"capgpu/internal/shm"
	"capgpu/ledger"
)

// To admit a bundle is work of the driver's own, before anything runs: so a device
// has one bundle in hand at a time, a tenant one in line for that, and a session one
// in line for its tenant's place. Tenants that load take turns, and so do the
// sessions of one, however much each asks for. The time that it took is charged as
// device time, and counts in the fair share. Closing the session ends it.

// line is a place for one goroutine at a time. Those that wait get it in the order in
// which they came.
type line chan struct{}

func newLine() line { return make(line, 1) }

func (l line) enter(ctx context.Context) bool {
	select {
	case l <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (l line) leave() { <-l }

// turnToLoad waits until it is the session's turn; the caller calls done.
func (s *Session) turnToLoad(ctx context.Context) (done func(), err error) {
	lines := [...]line{s.loading, s.tenant.loading, s.dev.loading}
	leave := func(entered int) {
		for entered--; entered >= 0; entered-- {
			lines[entered].leave()
		}
	}
	for i, l := range lines {
		if !l.enter(ctx) {
			leave(i)
			return nil, gpuerr.New(gpuerr.Busy, "other programs are being loaded; try again")
		}
	}
	return func() { leave(len(lines)) }, nil
}

// LoadProgram has the device admit the program bundle that lies in a buffer of the
// session. It is copied out once, so that nobody changes what is admitted.
func (s *Session) LoadProgram(ctx context.Context, from Handle, off, bytes uint64) (Handle, *backend.ProgramInfo, error) {
	if err := s.enterToWork(); err != nil {
		return 0, nil, err
	}
	defer s.node.Leave()
	switch {
	case s.facet < FacetFull:
		return 0, nil, gpuerr.New(gpuerr.Unimplemented, "this session cannot load programs; open one of its list")
	case !s.dev.cfg.Backend.Info().LoadsPrograms:
		return 0, nil, gpuerr.New(gpuerr.Unimplemented, "this device loads no programs; open one of its list")
	case bytes == 0 || bytes > backend.MaxBundleBytes:
		return 0, nil, gpuerr.New(gpuerr.Invalid, "bytes: a bundle has 1 to %d bytes, not %d", backend.MaxBundleBytes, bytes)
	}
	// The charge comes before the memory and the work of admitting: a refused
	// client costs nothing.
	p := &program{session: s, loaded: true}
	return s.chargedProgram(p, loadedBytes(bytes), func() (backend.Program, error) {
		ctx, stop := heap.WhileOpen(ctx, s.node.Done())
		defer stop()
		code, bundle, took, err := s.admit(ctx, from, off, bytes)
		p.bundle, p.took = bundle, took
		if err != nil && !s.node.Live() {
			err = s.closedError(s.node.Err()) // it was given up because of that
		}
		return code, err
	})
}

// admit has the backend load a bundle, of which it returns a copy, when it is the session's
// turn, and says how long that took.
func (s *Session) admit(ctx context.Context, from Handle, off, bytes uint64) (code backend.Program, bundle []byte, took time.Duration, err error) {
	done, err := s.turnToLoad(ctx)
	if err != nil {
		return nil, nil, 0, err
	}
	defer done()
	if err := s.account.CanSpend(ledger.DeviceTime); err != nil {
		return nil, nil, 0, err
	}
	began := time.Now()
	defer func() { s.spendTime(took) }()
	defer func() { took = time.Since(began) }()
	if bundle, err = s.copyOut(from, off, bytes); err != nil {
		return nil, nil, 0, err
	}
	code, err = s.dev.cfg.Backend.Load(ctx, slices.Clone(bundle))
	return code, bundle, 0, err
}

// spendTime charges the session time that it had of the driver.
func (s *Session) spendTime(took time.Duration) {
	if took <= 0 {
		return
	}
	_ = s.account.Spend(ledger.DeviceTime, uint64(took)) // being over the limit shows at the next one
	r := s.dev.reactor
	r.mail.post(func() { r.share.spend(s.flow, int64(took)) })
}

// loadedBytes is what a loaded program is charged in programBytes: an upper bound,
// in round numbers, of what its parsed and its compiled forms take.
func loadedBytes(bundle uint64) uint64 { return loadedFixedBytes + loadedFactor*bundle }

const (
	loadedFixedBytes = 64 << 10
	loadedFactor     = 64
)

// copyOut copies a range of a buffer that its owner may change or take away
// meanwhile.
func (s *Session) copyOut(h Handle, off, n uint64) ([]byte, error) {
	b, err := handles.Lookup[buffer](s.handles, h)
	if err != nil {
		return nil, err
	}
	if !b.mapped() {
		return nil, gpuerr.New(gpuerr.Invalid, "a buffer of usage device is the device's alone; put the bytes into one of usage upload")
	}
	if off >= b.bytes || n > b.bytes-off {
		return nil, gpuerr.New(gpuerr.Invalid, "%d bytes at %d are not within the buffer, which has %d", n, off, b.bytes)
	}
	if !b.pins.pin() {
		return nil, handles.ErrStale
	}
	defer b.pins.unpin()
	copied := make([]byte, n)
	if _, gone := shm.Guard(func() { copy(copied, b.host[off:off+n]) }); gone {
		return nil, gpuerr.New(gpuerr.IO, "the memory of the buffer could not be read")
	}
	return copied, nil
}
