package mock

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock/tick"
	"capgpu/outcome"
)

// slice is a part of a list that runs on the caller's goroutine, in the way of a burst
// (burst.go). Guarded by Device.mu.
type slice struct {
	list    []backend.Job
	at      int // the entry that runs
	from    int // the first of the group that is measured together
	outcome outcome.Outcome
	nanos   uint64 // that the group is expected to take
	began   int64  // when the group did
	over    int64  // no group begins after this
	clock   tick.Clock
	slow    bool // one of the group was too slow before
	gone    bool // the device left the bus
	never   atomic.Uint32
}

// sliceGroup is how many entries may be measured together: their time is told as one, and
// what they were expected to take may be wrong.
const sliceGroup = 32

// BurstList implements backend.ListBurster.
func (d *Device) BurstList(job *backend.Job, from int, most time.Duration) (n int, end backend.End) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.idleLocked() || d.log.digests || len(d.faults.faults) > 0 && d.faults.fits(job) {
		return 0, backend.End{}
	}
	if job.Context.Trapped() {
		return 0, backend.End{Outcome: cancelled}
	}
	s := &d.slice
	s.list, s.at, s.from, s.outcome, s.nanos, s.slow, s.gone = job.List, from, from, outcome.Success, 0, false, false
	var started time.Duration
	if len(d.log.ring) > 0 {
		started = time.Since(d.started)
	}
	s.clock = tick.Best()
	first := s.clock.Read()
	s.began, s.over = first, first+int64(most)
	old := debug.SetPanicOnFault(true)
	runtime.LockOSThread() // as in task.run
	d.sliceLocked()
	runtime.UnlockOSThread()
	debug.SetPanicOnFault(old)
	n, s.list = s.at-from, nil
	end = backend.End{Outcome: s.outcome, DeviceTime: time.Duration(max(s.began-first, 0))}
	if n > 0 || s.gone {
		d.noteSliceLocked(job, job.List[from:from+n], started, end)
	}
	switch {
	case n == 0:
		return 0, backend.End{}
	case s.gone: // the core learns it as it does from Submit
		end.Outcome = outcome.Success
	}
	return n, end
}

// sliceLocked runs entries until there is a reason to stop.
//
// +checklocks:d.mu
func (d *Device) sliceLocked() {
	defer d.sliceCaughtLocked()
	s := &d.slice
	defer s.measure()
	for s.at < len(s.list) && s.began <= s.over {
		for end := min(s.at+sliceGroup, len(s.list)); s.at < end && s.nanos < groupNanos; {
			r, ok := s.list[s.at].Ready.(*ready)
			if !ok || r.dev != d || r.slow > 0 && !s.again(r) || !d.do(r, &s.never, &s.outcome) {
				return
			}
			s.nanos += r.nanos
			s.at++
			if s.outcome.Kind != outcome.OK {
				return
			}
		}
		s.measure()
	}
}

// again says whether an entry that was too slow before is tried once more.
func (s *slice) again(r *ready) bool {
	s.slow = true
	return !r.rests()
}

// measure ends a group. If that was far slower than expected it counts for its entries,
// as in a burst.
func (s *slice) measure() {
	now := s.clock.Read()
	took := uint64(max(now-s.began, 0))
	if slow := took > slowFactor*s.nanos+slowNanos; slow || s.slow {
		for i := s.from; i < s.at; i++ {
			if r, ok := s.list[i].Ready.(*ready); !ok {
				continue
			} else if slow {
				r.slow++
			} else {
				r.slow = 0
			}
		}
	}
	s.from, s.began, s.nanos, s.slow = s.at, now, 0, false
}

// sliceCaughtLocked is deferred: it ends the entry that panicked, if one did.
//
// +checklocks:d.mu
func (d *Device) sliceCaughtLocked() {
	p := recover()
	if p == nil {
		return
	}
	s := &d.slice
	if s.outcome, s.gone = d.caught(s.list[s.at].Ready.(*ready), p); s.gone {
		d.vanishLocked()
		return
	}
	s.at++
}

// noteSliceLocked does for a slice what Submit and finish do for a job.
//
// +checklocks:d.mu
func (d *Device) noteSliceLocked(job *backend.Job, ran []backend.Job, started time.Duration, end backend.End) {
	d.faults.jobs++
	if len(d.log.ring) == 0 {
		return
	}
	ref := d.log.open(job.ID, d.faults.jobs, job, NoFault)
	r := result{outcome: end.Outcome, gone: d.slice.gone}
	for i := range ran {
		if i < len(ran)-1 || end.Outcome.Kind == outcome.OK {
			r.written += written(&ran[i])
		}
	}
	d.log.begin(ref, started)
	d.log.end(ref, r, time.Since(d.started))
}

var _ backend.ListBurster = (*Device)(nil)
