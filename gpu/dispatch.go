package gpu

import (
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// dispatch gives the device what is ready, in the order of the fair share: short work it
// runs here, where the backend can, and the rest it submits, as far as the device and the
// tenants' credits go.
func (r *reactor) dispatch() {
	until := time.Time{}
	for r.mayDispatch() {
		j := r.share.first()
		if j == nil {
			return
		}
		if how, yes := j.withdrawn(); yes {
			r.books++
			r.share.next()
			r.share.returned(j, 0)
			r.books--
			j.finish(how, 0)
			continue
		}

		if r.runsHere(j) {
			r.idle.worked = true
			failed := r.runHere()
			now := time.Now()
			if until.IsZero() {
				until = now.Add(visitSlice)
			}
			if failed || now.After(until) {
				return
			}
			continue
		}

		if len(r.sent.free) == 0 {
			return
		}
		r.idle.worked = true
		r.books++
		r.share.next()
		r.books--
		r.submit(j)
	}
}

func (r *reactor) mayDispatch() bool {
	return r.state == deviceRunning && !r.recovery.mustReset && !r.dev.isLost.Load() && !r.frozen()
}

// Work that runs here holds up everything else, and nothing can stop it.
const (
	mostHere      = 64                     // jobs at once
	mostHereNanos = 50_000                 // that they are expected to take together
	mostListHere  = 200 * time.Microsecond // that one list is
)

// here is what is about to run on the reactor's goroutine.
type here struct {
	jobs  []*job
	works []*backend.Job
	ends  [mostHere]backend.End
}

// short is what the backend says of a job that may run here.
type short struct {
	ready backend.Ready // the backend's; its memory is used again
	asked bool
	nanos int64 // that it is expected to take; 0: it is to be submitted
}

// runsHere reports whether a job can run here, now: the device has nothing, and the backend
// expects the job to be short.
func (r *reactor) runsHere(j *job) bool {
	if r.traits.runner == nil || r.sent.n > 0 {
		return false
	}

	if s := &j.short; !s.asked {
		s.asked, s.nanos = true, 0
		switch {
		case j.frame != nil:
			s.nanos = j.frame.nanos
		case j.list != nil:
			s.nanos = j.list.nanos
		default:
			if s.nanos = r.prepare(&j.work, s.ready); s.nanos > 0 {
				s.ready = j.work.Ready
			}
		}
	}

	return j.short.nanos > 0
}

// prepare has the backend look at work that may run here, and returns what it is expected to
// take, at least 1; 0: it is to be submitted. old is memory that may be used again. Any
// goroutine may call it.
func (r *reactor) prepare(work *backend.Job, old backend.Ready) (nanos int64) {
	work.Ready = nil
	if r.traits.runner == nil {
		return 0
	}

	ready, nanos, ok := r.traits.runner.Prepare(work, old)
	if !ok {
		return 0
	}

	work.Ready = ready
	return max(nanos, 1)
}

// sumNanos adds what an entry of a list is expected to take to what those before it are; below
// 0: the list is to be submitted.
func sumNanos(list, entry int64) int64 {
	if list < 0 || entry == 0 || list+entry > int64(mostListHere) {
		return -1
	}
	return list + entry
}

// runHere has the backend run ready jobs on this goroutine, as many of those that are next
// as are expected to take a slice together. It reports whether one of them failed: then it
// is to be retired before anything else is sent.
func (r *reactor) runHere() (failed bool) {
	h := &r.here
	h.jobs, h.works = h.jobs[:0], h.works[:0]
	r.books++
	for nanos := int64(0); len(h.jobs) < mostHere && nanos < mostHereNanos; {
		j := r.share.first()
		if j == nil {
			break
		}
		if _, yes := j.withdrawn(); yes || !r.runsHere(j) {
			break
		}
		r.share.next()
		r.sent.number(j, 0)
		nanos += j.short.nanos
		h.jobs, h.works = append(h.jobs, j), append(h.works, &j.work)
	}

	n := r.callRun(h.works, h.ends[:len(h.works)])
	r.books--
	for i, j := range h.jobs[:n] {
		failed = r.ranHere(j, &h.ends[i]) || failed
	}

	if n < len(h.jobs) {
		// The next one has to be submitted. Entries of a list that have run do not run again.
		j, end := h.jobs[n], &h.ends[n]
		j.work.From += end.Begun
		j.flight.had += end.DeviceTime
		j.short.nanos = 0
		r.books++
		for i := len(h.jobs) - 1; i >= n; i-- {
			r.share.putBack(h.jobs[i])
		}
		r.books--
	}

	clear(h.jobs)
	clear(h.works)
	return failed
}

// callRun calls the backend. A bug of it is the loss of the device, and of what it was given.
func (r *reactor) callRun(works []*backend.Job, ends []backend.End) (n int) {
	clear(ends)
	defer r.backend.caught("Run", nil)
	return r.traits.runner.Run(works, ends)
}

// ranHere ends a job that ran here, and reports whether it failed.
func (r *reactor) ranHere(j *job, end *backend.End) (failed bool) {
	how, lost := believe(end.Outcome, outcome.Outcome{})
	if end.Outcome.Kind == outcome.Cancelled && j.session().context.Trapped() {
		how = poisonedOutcome // it was not begun
	}

	if j.list != nil {
		j.launched = j.list.launchedBy(uint64(j.work.From) + uint64(end.Begun))
	}

	took := r.bounded(j, end.DeviceTime)
	r.books++
	r.recent.add(j)
	r.recovery.fruitless = 0
	j.flight.begun = true
	r.share.returned(j, int64(took))
	r.books--
	r.endSent(j, how, took, lost)

	return how.Kind != outcome.OK
}

// bounded is a device time that can be: no job runs longer without being stopped,
// whatever the device says.
func (r *reactor) bounded(j *job, took time.Duration) time.Duration {
	return min(max(took, 0), j.budget+r.dev.cfg.HangBound)
}

// submit sends a job that next has taken.
func (r *reactor) submit(j *job) {
	if !j.pin() { // it is being closed since withdrawn has looked
		r.books++
		r.share.returned(j, 0)
		r.books--
		j.finish(revokedOutcome, 0)
		return
	}
	r.books++
	r.sent.add(j)
	r.books--
	if r.traits.settles {
		j.flight.sent = time.Now()
	}

	id := j.work.ID
	err := r.backend.Submit(&j.work)
	if err == nil {
		return
	}

	// Not taken: the device will not touch it.
	how := errorOutcome
	if gpuerr.CodeOf(err) == gpuerr.DeviceLost {
		how = lostOutcome
		r.lose("the device said that it is lost")
	}

	if r.sent.find(id) == j {
		r.drop(j, 0)
		j.finish(how, 0)
	}
}
