package gpu

import (
	"context"
	"sync/atomic"
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
)

// A device that moves memory by itself may report success of a job after the IOMMU refused
// an access of it: what it wrote is not there. The IOMMU reports the refusal before the
// device can say that it is done, but the record is the kernel's, which writes it some
// time later, and the reader of the record may be behind. So an OK of such a device is held
// until Config.Settle has answered: by then Device.Fault was called for every refusal until
// now. A device error is held, too: a fault may be what it is.
//
//	complete ──► reported ──settle──► ok, or failed (deviceError)
//	               └─Fault─► faulted ──reset──► failed (iommuFault)
//
// The kernel leaves reports out when it has many. Settle says since when it cannot
// have left out one of this device: work that the device had before that ends as a
// device error, which is nobody's strike, unless the backend itself has seen that it
// was done (backend.Info.Verifies). So does all work while the record cannot be read.
//
// One question serves all jobs that were reported before it was asked; another goroutine
// asks it. A job that is reported still has its place in the device's order, and no deadline
// any more.
type settling struct {
	asking  bool
	again   bool // more was reported since
	ids     []backend.JobID
	unknown atomic.Bool // nobody records faults: Config.Settle is not asked
}

// settle asks for what was reported, unless a question is under way.
func (r *reactor) settle() {
	s := &r.settling
	if s.asking {
		s.again = true
		return
	}
	s.ids = s.ids[:0]
	for j := r.sent.oldest; j != nil; j = j.flight.newer {
		if j.flight.reported.yes {
			s.ids = append(s.ids, j.work.ID)
		}
	}
	if len(s.ids) == 0 {
		return
	}
	s.asking, s.again = true, false
	// If there is no answer by then, nobody can say that the work is done, and it
	// ends as a device error: within the bound of work that missed its deadline.
	aside(r, func() settlement { return r.ask(r.dev.cfg.HangBound) }, r.settled)
}

// settled ends jobs that were reported, unless they are a reset's to end.
func (r *reactor) settled(known settlement) {
	s := &r.settling
	s.asking = false
	for _, id := range s.ids {
		j := r.sent.find(id)
		if j == nil || r.recovery.mustReset || r.state != deviceRunning {
			continue
		}
		how := j.flight.reported.how
		switch {
		case j.flight.broken:
			how = dependentOutcome
		case !known.believes(j):
			how = errorOutcome
		}
		r.finishSent(j, how, j.flight.reported.time, false)
	}
	if s.again {
		r.settle()
	}
}

// settlement is what is known of the faults of the device.
type settlement struct {
	all      bool          // the word of the device is enough
	asked    time.Time     // when this was known
	complete time.Duration // no fault was left out of the record for so long by then
}

// believes reports whether a success of the job can be told.
func (k settlement) believes(j *job) bool { return k.all || k.asked.Sub(j.flight.sent) < k.complete }

// ask asks. Where nobody records faults they cannot be known. It blocks, and the reactor
// does not call it.
func (r *reactor) ask(patience time.Duration) settlement {
	if !r.traits.settles || r.settling.unknown.Load() {
		return settlement{all: true}
	}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	complete, err := r.dev.cfg.Settle(ctx)
	switch {
	case gpuerr.CodeOf(err) == gpuerr.Unimplemented:
		r.settling.unknown.Store(true)
		r.dev.log.Warn("faults of the device are not on record; its word alone makes an ok", "error", err)
		return settlement{all: true}
	case err != nil:
		r.dev.log.Error("nobody can say whether work of the device faulted", "error", err)
		complete = 0
	case r.traits.verifies:
		return settlement{all: true}
	}
	return settlement{asked: time.Now(), complete: complete}
}
