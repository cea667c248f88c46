package gpu

import (
	"context"
	"time"

	"capgpu/gpu/backend"
	"capgpu/internal/crashpoint"
	"capgpu/outcome"
)

// A reset blocks, so a goroutine of its own asks the backend for it, and the reactor goes on
// without the device meanwhile: clients are heard, closes are waited for, nothing is sent.

// resetStuck takes the device back from a job that does not stop.
func (r *reactor) resetStuck(j *job) {
	since := r.sent.headSince
	if j.flight.stoppedAt.After(since) {
		since = j.flight.stoppedAt
	}

	culprit, id := j.session(), j.work.ID
	r.incident(j, "did not stop")
	queueFirst := r.queueMayHelp(culprit)
	r.state = deviceResetting
	r.dev.auditEvent("reset", culprit.tenant, "session=%d outcome=%q after=%v", culprit.id, j.flight.stopAs, time.Since(since))
	if !j.flight.guilty {
		r.dev.strike(culprit, "did not stop", "")
	}

	if queueFirst {
		r.resetContext(culprit, id, since)
		return
	}

	r.reset(id, since)
}

// resetFaulted takes the device back after it reached for what it was not granted.
func (r *reactor) resetFaulted() {
	r.incident(nil, outcome.IOMMUFault.String())
	r.state = deviceResetting
	r.dev.auditEvent("reset", nil, "cause=%q", outcome.IOMMUFault)
	r.reset(0, time.Now())
}

// aside runs ask on a goroutine, and then with its answer what the reactor does.
func aside[T any](r *reactor, ask func() T, then func(T)) {
	r.closing.Go(func() {
		answer := ask()
		r.mail.post(func() { then(answer) })
	})
}

// resetContext ends what the device has of one session, and nothing else. If it cannot the
// device is reset.
func (r *reactor) resetContext(s *Session, guilty backend.JobID, since time.Time) {
	r.climb(outcome.QueueReset)
	until := time.Now().Add(r.cancelPatience())
	if last := since.Add(3 * r.dev.cfg.HangBound / 8); last.Before(until) {
		until = last
	}

	aside(r, func() (err error) {
		ctx, stop := context.WithDeadline(context.Background(), until)
		defer stop()
		defer r.backend.caught("ResetContext", &err)
		return r.traits.resetter.ResetContext(ctx, &s.context)
	}, func(err error) {
		switch {
		case r.state != deviceResetting: // lost meanwhile
		case err != nil:
			r.dev.log.Warn("the work of one session could not be ended alone", "session", s.id, "err", err)
			r.reset(guilty, since)
		case r.recovery.mustReset:
			r.reset(guilty, since)
		default:
			r.contextWasReset(s, guilty)
		}
	})
}

func (r *reactor) contextWasReset(s *Session, guilty backend.JobID) {
	now := time.Now()
	r.takeLate()
	var endings []ending
	for j := r.sent.oldest; j != nil; {
		next := j.flight.newer
		if r.endsWith(j.session(), s) && (!j.flight.reported.yes || j.flight.broken) { // else the device was done with it
			endings = append(endings, r.endByReset(j, guilty, s, now))
		}
		j = next
	}

	r.climb(outcome.RecoveryNone)
	r.state = deviceRunning
	r.recovery.fruitless++
	r.recovery.fruitlessOf = s.tenant
	finishEndings(endings)
	r.loseAllLocal()
	r.settle() // what was reported meanwhile waits for it
}

// endsWith reports whether a reset of the context of one session ends the work of another.
func (r *reactor) endsWith(other, s *Session) bool {
	return other == s || r.traits.grouped && other.tenant == s.tenant
}

// takeLate takes in what the backend has told until now: a job that it has completed before
// a reset ended so.
func (r *reactor) takeLate() {
	for _, c := range r.mail.takeDone() {
		r.complete(c)
	}
}

// ending is how a job ends with a reset.
type ending struct {
	j    *job
	how  outcome.Outcome
	took time.Duration
}

func finishEndings(all []ending) {
	for _, x := range all {
		x.j.finish(x.how, x.took)
	}
}

// endByReset takes a job off the books that was not done when the device forgot it:
// as it was stopped, if it was; as dependent, if it is of the guilty session; else it was
// merely there.
func (r *reactor) endByReset(j *job, guilty backend.JobID, of *Session, now time.Time) ending {
	x := ending{j: j, how: resetOutcome}
	switch {
	case j.flight.stopAs.Kind != outcome.Pending:
		x.how = j.flight.stopAs
	case j.session().poison.Load() != nil:
		x.how = poisonedOutcome
	case j.flight.broken, of != nil && j.session() == of:
		x.how = dependentOutcome
	}

	if j.work.ID == guilty {
		x.took = now.Sub(r.sent.headSince)
	}

	r.drop(j, x.took)
	return x
}

// reset ends what the device has: guilty, if it is not 0, and what faulted as such,
// what was stopped before as that, what was done as ok if there was no fault, and the
// rest as innocent. It began at since.
func (r *reactor) reset(guilty backend.JobID, since time.Time) {
	r.climb(outcome.FunctionReset)
	r.resets.Add(1)
	aside(r, func() (done resetDone) {
		ctx, stop := context.WithDeadline(context.Background(), since.Add(3*r.dev.cfg.HangBound/4))
		defer stop()
		crashpoint.Here("driver.reset.begun")
		if done.err = r.backend.Reset(ctx); done.err == nil {
			crashpoint.Here("driver.reset.done")

			// The faults of what was reset away come before anything else is sent.
			done.known = r.ask(r.dev.cfg.HangBound / 4)
		}
		return done
	}, func(done resetDone) {
		switch {
		case done.err != nil:
			r.lose("the device could not be reset: " + done.err.Error())
		case r.state == deviceResetting: // else it was lost meanwhile
			r.wasReset(guilty, done.known)
		}
	})
}

type resetDone struct {
	err   error
	known settlement
}

func (r *reactor) wasReset(guilty backend.JobID, known settlement) {
	now := time.Now()
	r.takeLate()
	ran := now.Sub(r.sent.headSince) // of the oldest
	var of *Session
	if j := r.sent.find(guilty); j != nil {
		of = j.session()
	}

	var endings []ending
	for j := r.sent.oldest; j != nil; j = r.sent.oldest {
		f := &j.flight
		how, took := outcome.Outcome{}, time.Duration(0)
		switch {
		case f.faulted:
			how, took = faultOutcome, ran
		case f.reported.yes && r.recovery.mustReset: // the fault may have been its own
			how = resetOutcome
		case f.reported.yes && !f.broken && known.believes(j):
			how, took = f.reported.how, f.reported.time
		case f.reported.yes && !f.broken:
			how = errorOutcome
		default:
			endings = append(endings, r.endByReset(j, guilty, of, now))
			continue
		}
		r.drop(j, took)
		endings = append(endings, ending{j, how, took})
	}

	r.climb(outcome.RecoveryNone)
	r.recovery.fruitless, r.recovery.mustReset = 0, false
	r.state = deviceRunning
	finishEndings(endings)
	r.loseAllLocal()
}
