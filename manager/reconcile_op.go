package manager

import (
	"slices"
	"sync"
	"sync/atomic"

	"capgpu/iommu"
)

// maxOps bounds the operations of a function that wait for their comparison. It is reached
// only when the audit log delays the comparison. Further operations are counted.
const maxOps = 1 << 16

// minOps is the capacity at the start, so that operations do not wait for an allocation.
const minOps = 64

// endedOp is an operation of a domain that has returned.
type endedOp struct {
	iommu.Op
	epoch uint64
	err   error
}

// opRecorder notes the requests of one function's domain to the kernel. The domain takes a
// lock that is held for a short time, and never waits otherwise.
type opRecorder struct {
	name   string
	device AuditLog      // of the device
	own    AuditLog      // of its drivers
	epoch  atomic.Uint64 // of operations that begin

	mu sync.Mutex
	// +checklocks:mu
	open []endedOp // begun and not ended: as many as threads in the kernel
	// +checklocks:mu
	ended []endedOp
	// +checklocks:mu
	dropped uint64
}

var _ iommu.Observer = (*opRecorder)(nil)

// SetEpoch sets the driver that operations are for from now on.
func (r *opRecorder) SetEpoch(epoch uint64) {
	if r != nil {
		r.epoch.Store(epoch)
	}
}

// Began implements iommu.Observer.
func (r *opRecorder) Began(op iommu.Op) {
	epoch := r.epoch.Load()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = append(r.open, endedOp{Op: op, epoch: epoch})
}

// Ended implements iommu.Observer.
func (r *opRecorder) Ended(op iommu.Op, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := len(r.open) - 1
	for i := last; i >= 0; i-- {
		if r.open[i].Seq != op.Seq {
			continue
		}
		epoch := r.open[i].epoch
		r.open[i] = r.open[last]
		r.open = r.open[:last]
		if len(r.ended) >= maxOps {
			r.dropped++
			return
		}
		r.ended = append(r.ended, endedOp{Op: op, epoch: epoch, err: err})
		return
	}
}

// take returns the operations that have ended since the last call, in the order of their end,
// those under way, and how many were dropped.
func (r *opRecorder) take() (ended, open []endedOp, dropped uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	open, dropped = slices.Clone(r.open), r.dropped
	r.dropped = 0
	if len(r.ended) > 0 {
		ended = r.ended
		r.ended = make([]endedOp, 0, min(max(len(ended), minOps), maxOps))
	}
	return ended, open, dropped
}
