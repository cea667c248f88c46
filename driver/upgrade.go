package driver

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"capgpu/control"
	"capgpu/driver/session"
	"capgpu/gpu"
	"capgpu/gpuerr"
	"capgpu/internal/crashpoint"
)

// A live upgrade, as a driver sees it from either end (docs/live-upgrade.md):
//
//	driver:    Handover ─► sessions paused, device frozen ─► state and descriptors told
//	              └── Thaw, or it fails ─► everything goes on ─── else it is killed as it is
//	successor: TakeOver ─► state read, checked, made ─► Go ─► everything goes on
//	              └── anything else ─► the process ends, and dismantles nothing
//
// Between TakeOver and Go everything that a client could see is still the other driver's.

// state is everything that travels as JSON.
type state struct {
	Image  *gpu.Image
	Served []session.State
}

// stateHead announces a state.
type stateHead struct {
	Version     uint32 `json:"version"`
	Bytes       uint64 `json:"bytes"`
	Descriptors uint64 `json:"descriptors"`
}

// upgrade is a driver's part in one.
type upgrade struct {
	hub session.Hub
	// version is that of the states that the driver tells and takes.
	version uint32
	// adopts says that what the driver has is another's until Go: then it ends without
	// a word.
	adopts atomic.Bool

	// thawed is the number of the last Thaw on the supervision link. A request to stop
	// that was sent before it is given up already, however late it is looked at.
	thawed atomic.Uint64

	mu sync.Mutex
	// +checklocks:mu
	frozen bool
	// by is the number of the request that has frozen it.
	// +checklocks:mu
	by uint64
	// inTheWay are the sessions because of which the device could not be stopped or told
	// the last time.
	// +checklocks:mu
	inTheWay []uint64
	// +checklocks:mu
	adopted *session.Adopted
}

var errStandsStill = gpuerr.New(gpuerr.Busy, "the driver stands still already, or takes over another's sessions")

var errGivenUp = gpuerr.New(gpuerr.Busy, "device-manager has given this up already")

// freeze stops the sessions and the device, or neither. number is the request's.
func (d *driver) freeze(ctx context.Context, number uint64) (served []session.State, sockets []session.Socket, err error) {
	u := &d.upgrade
	u.mu.Lock()
	defer u.mu.Unlock()
	u.inTheWay = nil // whatever comes of this one
	if u.frozen || u.adopts.Load() {
		return nil, nil, errStandsStill
	}
	// Looked at under the lock, which the Thaw takes after it has said its number.
	if number < u.thawed.Load() {
		return nil, nil, errGivenUp
	}
	crashpoint.Here("driver.handover.begun")
	if served, sockets, err = u.hub.Pause(ctx); err != nil {
		u.obstructedLocked(err)
		return nil, nil, err
	}
	if err := d.device.Freeze(ctx); err != nil {
		u.hub.Resume()
		u.obstructedLocked(err)
		return nil, nil, err
	}
	u.frozen, u.by = true, number
	return served, sockets, nil
}

// obstructedLocked notes who was in the way of a step that has failed.
//
// +checklocks:u.mu
func (u *upgrade) obstructedLocked(err error) {
	var o *gpu.Obstructed
	if errors.As(err, &o) {
		u.inTheWay = o.InTheWay()
	}
}

// preempt ends the sessions that were in the way the last time.
func (d *driver) preempt() []byte {
	u := &d.upgrade
	u.mu.Lock()
	named := u.inTheWay
	u.inTheWay = nil
	u.mu.Unlock()
	return control.EndedReply{Sessions: uint32(d.device.Preempt(named))}.AppendTo(nil)
}

// thawAt is thaw because the manager says so, in the request of that number.
func (d *driver) thawAt(number uint64) error {
	u := &d.upgrade
	for at := u.thawed.Load(); at < number && !u.thawed.CompareAndSwap(at, number); at = u.thawed.Load() {
	}
	return d.thaw()
}

// thaw goes on. Idempotent.
func (d *driver) thaw() error {
	u := &d.upgrade
	u.mu.Lock()
	defer u.mu.Unlock()
	return d.thawLocked()
}

// thawOf is thaw of what the request of that number has frozen: the manager may have given
// that up, and have had the driver stop anew.
func (d *driver) thawOf(number uint64) error {
	u := &d.upgrade
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.by != number {
		return nil
	}
	return d.thawLocked()
}

// +checklocks:d.upgrade.mu
func (d *driver) thawLocked() error {
	u := &d.upgrade
	if u.adopts.Load() {
		return errStandsStill
	}
	if u.frozen {
		u.frozen = false
		d.device.Thaw()
		u.hub.Resume()
	}
	return nil
}

// parseTimeout reads how long a step may take.
func parseTimeout(m *control.Message) (time.Duration, error) {
	req, err := control.ParseHandoverRequest(m.Body)
	return time.Duration(min(req.TimeoutNanos, math.MaxInt64)), err
}

// suspend stops everything until Thaw.
func (d *driver) suspend(ctx context.Context, m *control.Message) error {
	timeout, err := parseTimeout(m)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, _, err = d.freeze(ctx, m.Seq)
	return err
}
