package gpu

import (
	"time"

	"capgpu/outcome"
)

// cancel ends the jobs of a session that match: those that wait end at once, those that
// the device has are stopped there. It does not wait for them.
func (r *reactor) cancel(s *Session, match func(*job) bool, how outcome.Outcome) {
	r.stop(s, match, how)
	for _, q := range s.queues {
		finishAll(r.unready(q, match), how)
	}
}

// unready takes the jobs of a queue that match from those that wait for the device.
func (r *reactor) unready(q *queue, match func(*job) bool) jobList {
	r.books++
	defer func() { r.books-- }()
	return r.share.remove(q, match)
}

func anyJob(*job) bool { return true }

// stop has the device stop jobs of a session that it has.
func (r *reactor) stop(s *Session, match func(*job) bool, how outcome.Outcome) {
	now := time.Now()
	for j := r.sent.oldest; j != nil; j = j.flight.newer {
		if f := &j.flight; j.session() == s && f.stopAs.Kind == outcome.Pending && match(j) {
			f.stopAs, f.stoppedAt = how, now
			r.backend.Cancel(j.work.ID)
		}
	}
}

// cancelAll is cancel for callers on other goroutines: they close an object, have closed its
// pins, and match the jobs that use it. It returns when the reactor has seen to it.
func (s *Session) cancelAll(match func(*job) bool) {
	r := s.dev.reactor
	r.mail.call(func() { r.cancel(s, match, revokedOutcome) })
}
