package fake

import (
	"context"
	"sync"
	"time"

	"capgpu/ddf"
)

// Vector is the fake ddf.Interrupt.
//
// Interrupts without a waiter merge into one count. While the vector is masked they keep
// merging and Wait sleeps; Unmask delivers them. A level-triggered vector holds back after
// each delivery until Ack, and fires again at once if the device still asserts it (as INTx
// under vfio does). A storm masks it, and Wait says so until Unmask.
type Vector struct {
	revoked <-chan struct{}
	level   bool
	wake    chan struct{} // capacity 1: look again

	mu sync.Mutex
	// +checklocks:mu
	pending uint64
	// +checklocks:mu
	masked bool
	// +checklocks:mu
	asserted bool // level only: the device's line
	// +checklocks:mu
	unacked bool // level only: delivered and not yet acknowledged
	// +checklocks:mu
	gauge ddf.StormGauge
	// +checklocks:mu
	storming bool
	// +checklocks:mu
	owed uint64 // interrupts that came with a storm, counted after it
}

func newVector(level bool, revoked <-chan struct{}) *Vector {
	return &Vector{revoked: revoked, level: level, wake: make(chan struct{}, 1)}
}

// Raise is the device sending one interrupt. A level-triggered line stays
// asserted until Lower.
func (v *Vector) Raise() { v.RaiseMany(1) }

// RaiseMany is the device sending n interrupts at once.
func (v *Vector) RaiseMany(n uint64) {
	v.mu.Lock()
	v.asserted = v.level
	v.pending += n
	v.mu.Unlock()
	v.lookAgain()
}

// Lower is the device releasing a level-triggered line.
func (v *Vector) Lower() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asserted = false
}

func (v *Vector) lookAgain() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// Wait implements ddf.Interrupt.
func (v *Vector) Wait(ctx context.Context) (uint64, error) {
	for {
		if isClosed(v.revoked) {
			return 0, errRevoked
		}
		if n, err := v.take(); n > 0 || err != nil {
			return n, err
		}
		select {
		case <-v.wake:
		case <-v.revoked:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// take returns the interrupts that may be delivered now.
func (v *Vector) take() (uint64, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.storming {
		return 0, ddf.ErrStorm
	}
	if v.masked || v.unacked || v.pending+v.owed == 0 {
		return 0, nil
	}

	if v.gauge.Count(v.pending, time.Now()) {
		v.owed += v.pending
		v.pending, v.storming, v.masked = 0, true, true
		return 0, ddf.ErrStorm
	}

	n := v.pending + v.owed
	v.pending, v.owed = 0, 0
	v.unacked = v.level
	return n, nil
}

// Mask implements ddf.Interrupt.
func (v *Vector) Mask() error { return v.setMask(true) }

// Unmask implements ddf.Interrupt.
func (v *Vector) Unmask() error { return v.setMask(false) }

func (v *Vector) setMask(masked bool) error {
	if isClosed(v.revoked) {
		return errRevoked
	}
	v.mu.Lock()
	v.masked = masked
	v.storming = v.storming && masked
	v.mu.Unlock()
	v.lookAgain()
	return nil
}

// Ack implements ddf.Interrupt. On an edge-triggered vector it has nothing to do.
func (v *Vector) Ack() error {
	if isClosed(v.revoked) {
		return errRevoked
	}
	v.mu.Lock()
	if v.unacked {
		v.unacked = false
		if v.asserted && v.pending == 0 {
			v.pending = 1
		}
	}
	v.mu.Unlock()
	v.lookAgain()
	return nil
}

var _ ddf.Interrupt = (*Vector)(nil)
