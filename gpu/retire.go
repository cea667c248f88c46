package gpu

import (
	"reflect"

	"capgpu/gpuerr"
	"capgpu/internal/crashpoint"
	"capgpu/outcome"
	"capgpu/ring"
)

// mostTold is how many completions are published at once.
const mostTold = 64

var completionBytes = uint64(reflect.TypeFor[ring.Completion]().Size())

// look has the reactor retire what has ended, at the end of this round.
func (q *queue) look() {
	if !q.outlet.mustLook {
		q.outlet.mustLook = true
		r := q.session.dev.reactor
		r.ended = append(r.ended, q)
	}
}

// retire completes entries in queue order, as far as they have ended.
func (q *queue) retire() {
	if j := q.intake.waiting; j != nil {
		if how, over := j.fence.look(j.value); over {
			j.fence.forget(&q.intake.waiter)
			q.intake.waiting = nil
			q.waited(j, how)
		}
	}

	for q.head < q.tail {
		j := q.jobs[q.head%uint64(len(q.jobs))]
		switch {
		case j.state == jobEnded:
		case j.op == ring.OpSignal: // all before it has ended
			q.signal(j)
		default:
			return
		}
		q.complete(j)
		q.head++
	}
}

// signal reaches the point with the worst outcome of the work it covers.
func (q *queue) signal(j *job) {
	how := outcome.Worse(q.outlet.group, j.atLeast)
	at := q.session.dev.age()
	if !j.fence.end(j.value, how) { // the fence ended before
		how = outcome.Worse(how, revokedOutcome)
	}
	crashpoint.Here("driver.fence.ended")
	q.outlet.group = outcome.Success
	j.how, j.deviceTime, j.state = how, at, jobEnded // see ring.Completion.DeviceNanos
}

// complete makes a job's completion and frees it.
func (q *queue) complete(j *job) {
	out := &q.outlet
	if j.op != ring.OpSignal || j.code != gpuerr.None {
		out.group = outcome.Worse(out.group, j.how)
	}

	if len(out.told) == mostTold {
		q.publish()
	}

	if out.told == nil {
		out.told = make([]ring.Completion, 0, mostTold)
	}

	out.told = out.told[:len(out.told)+1]
	c := &out.told[len(out.told)-1]
	*c = ring.Completion{UserData: j.user, Outcome: j.how, Code: j.code}
	switch {
	case j.how.Kind == outcome.OK:
		c.DeviceNanos = uint64(j.deviceTime)
	case j.code == gpuerr.Quota:
		c.Available = j.available
	}

	q.countEnd(j.how)
	if j.launched > 0 {
		q.session.replayed(j)
	}

	if j.failed {
		q.retireFailed(j)
	}

	j.fence = nil
	j.discharge()
	j.state = jobFree
}

// countEnd counts how an entry ended.
func (q *queue) countEnd(how outcome.Outcome) {
	q.session.ended[how.Kind].Add(1)
	if how.Cause == outcome.TrapCause && q.session.traps.Add(1) == 1 {
		// The first one only; session.close tells how many there were.
		q.session.dev.auditEvent("fault", q.session.tenant, "session=%d cause=%q", q.session.id, how)
	}
}

// publish shows the client what was completed: once per round, so that one wake serves
// many.
func (q *queue) publish() {
	out := &q.outlet
	if len(out.told) == 0 {
		return
	}

	crashpoint.Here("driver.completion.told")
	if out.failed > 0 {
		q.publishFailed()
	} else {
		q.ring.Publish(out.told)
	}

	crashpoint.Here("driver.completion.published")
	out.told = out.told[:0]
}
