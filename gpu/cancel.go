package gpu

import (
	"time"

	"capgpu/gpu/backend"
	"capgpu/outcome"
)

// cancel stops the jobs of a session that match: those that wait end at once,
// those the device has are cancelled there. It does not wait for them.
func (e *engine) cancel(s *Session, match func(*job) bool, how outcome.Outcome) {
	var toCancel []backend.JobID
	var ended *job
	now := time.Now()
	e.mu.Lock()
	for j := e.oldest; j != nil; j = j.newer {
		if j.queue.session == s && j.stopAs.Kind == outcome.Pending && match(j) {
			j.stopAs, j.stoppedAt = how, now
			if j.submitted {
				toCancel = append(toCancel, j.work.ID)
			}
		}
	}
	for _, q := range s.flow.readyQueues() {
		ended = e.unreadyLocked(q, match, ended)
	}
	e.mu.Unlock()
	for _, id := range toCancel {
		e.backend.Cancel(id)
	}
	finishList(ended, how)
	nudge(e.wake)
}

// unreadyLocked takes matching jobs off a queue's ready list and puts them in
// front of rest.
//
// +checklocks:e.mu
func (e *engine) unreadyLocked(q *queue, match func(*job) bool, rest *job) *job {
	if q.readyHead == nil {
		return rest
	}
	var head, tail *job
	for j := q.readyHead; j != nil; {
		next := j.next
		if j.next = nil; match(j) {
			j.spoil()
			j.next, rest = rest, j
		} else if tail == nil {
			head, tail = j, j
		} else {
			tail.next, tail = j, j
		}
		j = next
	}
	q.readyHead, q.readyTail = head, tail
	if head == nil {
		q.leaveCircle(q.session.flow)
		e.top.update(q.session.flow)
	}
	return rest
}
