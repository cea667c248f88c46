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
//	driver:    Handover ─► sessions paused, device frozen ─► state and descriptors sent
//	              └── Thaw, or it fails ─► the driver resumes ─── else it is killed as it is
//	successor: TakeOver ─► state read, checked, made ─► Go ─► the sessions resume
//	              └── anything else ─► the process ends, and dismantles nothing
//
// Between TakeOver and Go everything that a client could see is still the other driver's.

// state is the part of a driver's state that travels as JSON.
type state struct {
	Snapshot *gpu.Snapshot
	Served   []session.State
}

// stateHead announces a state.
type stateHead struct {
	Version     uint32 `json:"version"`
	Bytes       uint64 `json:"bytes"`
	Descriptors uint64 `json:"descriptors"`
}

// upgrade is a driver's part in a live upgrade.
type upgrade struct {
	hub session.Hub
	// version is the version of the states that this driver sends and accepts.
	version uint32
	// adopts is true while the driver's objects still belong to another driver,
	// until Go. A driver that ends before Go dismantles nothing.
	adopts atomic.Bool

	// thawed is the number of the last Thaw on the supervision link. The manager
	// has already given up any request to stop with a lower number, however late
	// the driver reads it.
	thawed atomic.Uint64

	mu sync.Mutex
	// +checklocks:mu
	frozen bool
	// by is the number of the request that froze the driver.
	// +checklocks:mu
	by uint64
	// blockers are the sessions that kept the last step from freezing or exporting
	// the device.
	// +checklocks:mu
	blockers []uint64
	// +checklocks:mu
	adopted *session.Adopted
}

var errStandsStill = gpuerr.New(gpuerr.Busy, "the driver stands still already, or takes over another's sessions")

var errGivenUp = gpuerr.New(gpuerr.Busy, "device-manager has given this up already")

// freeze stops both the sessions and the device, or neither. number is the
// request's number.
func (d *driver) freeze(ctx context.Context, number uint64) (served []session.State, sockets []session.Socket, err error) {
	u := &d.upgrade
	u.mu.Lock()
	defer u.mu.Unlock()

	u.blockers = nil // cleared whatever the result of this step is
	if u.frozen || u.adopts.Load() {
		return nil, nil, errStandsStill
	}

	// The check is under the lock, because a Thaw stores its number before it takes
	// the lock.
	if number < u.thawed.Load() {
		return nil, nil, errGivenUp
	}

	crashpoint.Here("driver.handover.begun")
	if served, sockets, err = u.hub.Pause(ctx); err != nil {
		u.noteBlockersLocked(err)
		return nil, nil, err
	}

	if err := d.device.Freeze(ctx); err != nil {
		u.hub.Resume()
		u.noteBlockersLocked(err)
		return nil, nil, err
	}

	u.frozen, u.by = true, number
	return served, sockets, nil
}

// noteBlockersLocked keeps the sessions that blocked a step that has failed.
//
// +checklocks:u.mu
func (u *upgrade) noteBlockersLocked(err error) {
	var o *gpu.Blocked
	if errors.As(err, &o) {
		u.blockers = o.Blockers()
	}
}

// preempt ends the sessions that blocked the last step.
func (d *driver) preempt() []byte {
	u := &d.upgrade
	u.mu.Lock()
	named := u.blockers
	u.blockers = nil
	u.mu.Unlock()
	return control.EndedReply{Sessions: uint32(d.device.Preempt(named))}.AppendTo(nil)
}

// thawAt resumes on the manager's request with this number.
func (d *driver) thawAt(number uint64) error {
	u := &d.upgrade
	for at := u.thawed.Load(); at < number && !u.thawed.CompareAndSwap(at, number); at = u.thawed.Load() {
	}
	return d.thaw()
}

// thaw resumes the device and its sessions. It is idempotent.
func (d *driver) thaw() error {
	u := &d.upgrade
	u.mu.Lock()
	defer u.mu.Unlock()
	return d.thawLocked()
}

// thawOf resumes only if the request of this number did the freezing. The manager
// may have given that request up and have frozen the driver again since.
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

// suspend freezes everything until Thaw.
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
