package gpu

import (
	"context"
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
)

// A device that moves memory by itself may report success of a job whose access the
// IOMMU refused: what it wrote is not there. The IOMMU reports the refusal before the
// device can say that it is done, but the record is the kernel's, which writes it some
// time later, and whoever reads it may be behind. So an OK of such a device is held until
// Config.Settle has answered: by then Device.Fault was called for every refusal until
// now. A device error is held, too: a fault may be what it is.
//
//	Complete ──► said ──settle──► ok, or failed (deviceError)
//	               └─Fault─► faulted ──reset──► failed (iommuFault)
//
// The kernel leaves reports out when it has many. Settle says since when it cannot
// have left out one of this device: work that the device had before that ends as a
// device error, which is nobody's strike, unless the backend itself has seen that it
// was done (backend.Info.Verifies). So does all work while the record cannot be read.
//
// One Settle serves all jobs that were said before it began. A job that is said
// still has its place in the device's FIFO, and no deadline any more.

// runSettle settles until quit is closed.
func (e *engine) runSettle(quit <-chan struct{}) {
	var ids []backend.JobID
	for {
		select {
		case <-e.settleWake:
		case <-quit:
			return
		}
		if ids = e.saidJobs(ids[:0]); len(ids) == 0 {
			continue
		}
		// If there is no answer by then, nobody can say that the work is done, and it
		// ends as a device error: within the bound of work that missed its deadline.
		known := e.settle(e.dev.cfg.HangBound)
		for _, id := range ids {
			e.settled(id, known)
		}
	}
}

// saidJobs appends the ids of the jobs that wait to be settled.
func (e *engine) saidJobs(ids []backend.JobID) []backend.JobID {
	e.mu.Lock()
	defer e.mu.Unlock()
	for j := e.oldest; j != nil; j = j.newer {
		if j.said {
			ids = append(ids, j.work.ID)
		}
	}
	return ids
}

// settlement is what is known of the faults of the device.
type settlement struct {
	all      bool          // the word of the device is enough
	asked    time.Time     // when this was known
	complete time.Duration // no fault was left out of the record for so long by then
}

// believes reports whether a success of the job can be told. The engine is locked.
func (k settlement) believes(j *job) bool { return k.all || k.asked.Sub(j.sent) < k.complete }

// settle asks. Where nobody records faults they cannot be known.
func (e *engine) settle(patience time.Duration) settlement {
	if !e.settles || e.unsettled.Load() {
		return settlement{all: true}
	}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	complete, err := e.dev.cfg.Settle(ctx)
	switch {
	case gpuerr.CodeOf(err) == gpuerr.Unimplemented:
		e.unsettled.Store(true)
		e.dev.log.Warn("faults of the device are not on record; its word alone makes an ok", "error", err)
		return settlement{all: true}
	case err != nil:
		e.dev.log.Error("nobody can say whether work of the device faulted", "error", err)
		complete = 0
	case e.verifies:
		return settlement{all: true}
	}
	return settlement{asked: time.Now(), complete: complete}
}

// settled ends a job that was said, unless it is a reset's to end.
func (e *engine) settled(id backend.JobID, known settlement) {
	e.mu.Lock()
	j := e.slots[uint64(id)&uint64(len(e.slots)-1)]
	if j == nil || j.work.ID != id || e.mustReset || e.state != engineRunning {
		e.mu.Unlock()
		return
	}
	how := j.saidHow
	if !known.believes(j) {
		how = errorOutcome
	}
	e.endLocked(j, how, j.saidTime, false)
}
