package gpu

import (
	"fmt"
	"time"

	"capgpu/gpu/backend"
	"capgpu/outcome"
)

// Fault is an access of the device that the IOMMU refused: nothing was read or
// changed by it.
//
// It means that what runs did not do what it says: the core keeps every span of a
// job mapped, so either the program made an address up, or the device or its
// backend went wrong. The core finds the work by, in this order,
//
//   - an address in a span of a job, or at most a page beside it: of the jobs that
//     the device has, oldest first; then of those that ended last, newest first;
//   - the time: the oldest job that the device has, which is the one that runs;
//   - the job that ended last, if that is not long ago.
//
// The job ends failed (iommuFault), and its session is poisoned and has a strike.
// With Config.Settle no job that faulted was told to be ok; without it, or where
// the record itself came late, one may have been: its session is poisoned all the
// same, so that its client learns. A fault of nobody's work is the device's.
//
// Either way the device is reset before anything else is sent to it, and all that it
// had of others ends innocent (reset), also if it says that it is done: an address
// without an owner may have been in any of that work.
type Fault struct {
	IOVA   uint64
	Write  bool
	Count  uint64 // faults since the last call
	Reason string // the kernel's words
}

// Fault tells the core of a fault. It returns when the core knows the session that is to
// blame; the reset follows.
func (d *Device) Fault(f Fault) {
	r := d.reactor
	r.faults.Add(f.Count)
	r.mail.call(func() { r.fault(f) })
}

func (r *reactor) fault(f Fault) {
	d := r.dev
	if r.state == deviceLost {
		d.auditEvent("fault", nil, "cause=%q%s", outcome.IOMMUFault, f.record(0, ""))
		return
	}
	s, id, when := r.blame(f.IOVA)
	r.recovery.mustReset = true // or what is being reset is doubtful, too
	more := f.record(id, when)
	if s == nil {
		d.auditEvent("fault", nil, "cause=%q%s", outcome.IOMMUFault, more)
		return
	}
	s.context.Trap()
	if r.poison(s, faultOutcome) {
		d.strike(s, outcome.IOMMUFault.String(), more)
	} else { // one job faults many times
		d.auditEvent("fault", s.tenant, "session=%d cause=%q%s", s.id, outcome.IOMMUFault, more)
	}
}

// record is the rest of the audit record.
func (f Fault) record(id backend.JobID, when string) string {
	access := "read"
	if f.Write {
		access = "write"
	}
	s := fmt.Sprintf(" iova=%#x access=%s faults=%d reason=%.128q", f.IOVA, access, f.Count, f.Reason)
	if id != 0 {
		s = fmt.Sprintf(" job=%d when=%s", id, when) + s
	}
	return s
}

// blame finds the job that a fault belongs to; one that the device still has ends with
// it. when is running, or for a job that has ended how it did.
func (r *reactor) blame(iova uint64) (s *Session, id backend.JobID, when string) {
	guilty := r.sent.oldest
	for j := r.sent.oldest; j != nil; j = j.flight.newer {
		if nearJob(&j.work, iova) {
			guilty = j
			break
		}
	}
	if guilty == nil || !nearJob(&guilty.work, iova) {
		if last := r.recent.find(iova, guilty == nil); last != nil {
			return last.session, last.id, "ended"
		}
	}
	if guilty == nil {
		return nil, 0, ""
	}
	guilty.flight.faulted = true
	if f := &guilty.flight; f.stopAs.Kind == outcome.Pending {
		f.stopAs, f.stoppedAt = faultOutcome, time.Now()
	}
	return guilty.session(), guilty.work.ID, "running"
}

// faultReach is how far beside a span an address still belongs to its job: the guard
// page behind each mapping.
const faultReach = 4096

func nearJob(j *backend.Job, iova uint64) (yes bool) {
	j.EachSpan(func(s backend.Span) bool {
		yes = near(s.IOVA, uint64(len(s.Host)), iova)
		return !yes
	})
	return yes
}

func near(from, bytes, iova uint64) bool {
	return iova+faultReach >= from && iova < from+bytes+faultReach
}

// recentJobs are the last jobs that ended, with what they could reach. Only a device with
// memory accesses that can fault has them.
type recentJobs struct {
	keep bool
	jobs [32]recentJob
	next int
}

type recentJob struct {
	session *Session // nil: none yet
	id      backend.JobID
	spans   []reach
	ended   time.Time
}

// reach is a piece of the device's address space.
type reach struct{ from, bytes uint64 }

// recentWindow is how long after the end of a job a fault may still be blamed on
// it: a record of the kernel comes within milliseconds.
const recentWindow = time.Second

func (r *recentJobs) add(j *job) {
	if !r.keep {
		return
	}
	x := &r.jobs[r.next%len(r.jobs)]
	r.next++
	x.session, x.id, x.ended = j.session(), j.work.ID, time.Now()
	x.spans = x.spans[:0]
	j.work.EachSpan(func(s backend.Span) bool {
		x.spans = append(x.spans, reach{s.IOVA, uint64(len(s.Host))})
		return true
	})
}

// find returns the newest job with a span at or beside the address, or, if anyOf, the
// one that ended last.
func (r *recentJobs) find(iova uint64, anyOf bool) *recentJob {
	oldest := time.Now().Add(-recentWindow)
	var last *recentJob
	for i := r.next - 1; i >= 0 && i >= r.next-len(r.jobs); i-- {
		x := &r.jobs[i%len(r.jobs)]
		if x.ended.Before(oldest) {
			break
		}
		if last == nil {
			last = x
		}
		for _, span := range x.spans {
			if near(span.from, span.bytes, iova) {
				return x
			}
		}
	}
	if anyOf {
		return last
	}
	return nil
}
