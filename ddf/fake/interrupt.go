package fake

import (
	"context"
	"sync"

	"capgpu/ddf"
)

// Vector is the fake ddf.Interrupt.
//
// Interrupts that nobody has waited for merge into one count. While the vector
// is masked they keep merging and Wait sleeps; Unmask delivers them. A
// level-triggered vector holds back after each delivery until Ack, and fires
// again at once if the device still asserts it (as INTx under vfio does).
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
}

func newVector(level bool, revoked <-chan struct{}) *Vector {
	return &Vector{revoked: revoked, level: level, wake: make(chan struct{}, 1)}
}

// Raise is the device sending one interrupt. A level-triggered line stays
// asserted until Lower.
func (v *Vector) Raise() {
	v.mu.Lock()
	v.asserted = v.level
	v.pending++
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
		if n := v.take(); n > 0 {
			return n, nil
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
func (v *Vector) take() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.masked || v.unacked {
		return 0
	}
	n := v.pending
	v.pending = 0
	v.unacked = v.level && n > 0
	return n
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
