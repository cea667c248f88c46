package engine

import (
	"slices"
	"sync"
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// job is a job of the core, or a scrub.
type job struct {
	work  *backend.Job
	id    backend.JobID
	group uint32
	order uint64 // of submission
	plan  *plan
	rec   *recording // nil: it is run once
	scrub []*piece   // it is none of the core's
	count int        // of dirty spans, in each of these

	stop bool  // it was cancelled
	proc *proc // that has it; nil: it waits
	seq  uint32
	lost int // engines that died while it was made ready
}

// Submit implements backend.Backend. A job for which all is ready is sent at once.
func (b *Backend) Submit(work *backend.Job) error {
	if err := b.checkJob(work); err != nil {
		return err
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.acceptsLocked(work.ID); err != nil {
		return err
	}
	b.order += 2
	j := &job{work: work, id: work.ID, group: groupOf(work.Context), order: b.order}
	j.plan, j.rec = b.planLocked(work)
	b.jobs[j.id] = j
	b.queue = append(b.queue, j)
	b.advanceLocked()
	return nil
}

// acceptsLocked says why a job cannot be taken now.
//
// +checklocks:b.mu
func (b *Backend) acceptsLocked(id backend.JobID) error {
	switch {
	case b.state == created:
		return gpuerr.New(gpuerr.Invalid, "Submit before Start")
	case b.state == gone:
		return b.goneLocked()
	case b.state == closed:
		return errClosed
	case b.resetting > 0:
		return gpuerr.New(gpuerr.Busy, "the device is being reset; try again")
	case len(b.jobs) >= maxJobs:
		return gpuerr.New(gpuerr.QueueFull, "all %d places of the device's queue are taken; wait for a completion", maxJobs)
	case b.jobs[id] != nil:
		return gpuerr.New(gpuerr.Invalid, "job %d is already outstanding", id)
	}
	return nil
}

// Cancel implements backend.Backend.
func (b *Backend) Cancel(id backend.JobID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j := b.jobs[id]
	if j == nil || j.stop {
		return
	}
	j.stop = true
	if j.proc != nil {
		j.proc.stopLocked()
		return
	}
	signal(b.wake) // it ends without having begun
}

// signal leaves a token in a channel of capacity 1.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// next is what can be done with the queue.
type next uint8

const (
	nothing next = iota
	sends        // a job can be sent
	needs        // a job needs the dispatcher
)

// advanceLocked sends what can be sent without waiting. The dispatcher does the rest.
//
// +checklocks:b.mu
func (b *Backend) advanceLocked() {
	for {
		j, what := b.nextLocked()
		switch what {
		case sends:
			b.sendLocked(b.procs[j.group], j)
		case needs:
			signal(b.wake)
			return
		default:
			return
		}
	}
}

// nextLocked looks for the next job, and what it takes.
//
// +checklocks:b.mu
func (b *Backend) nextLocked() (*job, next) {
	if b.state != live || b.resetting > 0 {
		return nil, nothing
	}
	for _, j := range b.queue {
		if j.stop {
			return j, needs
		}
	}

	j := b.firstLocked()
	if j == nil {
		return nil, nothing
	}
	if j.work.Context.Over(j.work.Round) {
		return j, needs
	}

	p, a := b.procs[j.group], b.active
	if a == nil || len(a.sent) == 0 {
		switch {
		case b.delivering > 0 && (a != p || a == nil || a.context != j.work.Context):
			return nil, nothing // until the last job of another is told
		case len(j.plan.entries) == 0 || p == nil || !p.readyLocked(j):
			return j, needs
		}
		return j, sends
	}

	switch {
	case p != a || a.context != j.work.Context || a.skipping || len(a.sent) >= wire.MaxAhead || !a.shortLocked() || len(j.plan.entries) == 0:
		return nil, nothing
	case !p.readyLocked(j):
		return j, needs
	}
	return j, sends
}

// firstLocked is the first job of a group that is not held; nil: there is none.
//
// +checklocks:b.mu
func (b *Backend) firstLocked() *job {
	for _, j := range b.queue {
		if b.held[j.group] == 0 {
			return j
		}
	}
	return nil
}

// shortLocked reports whether what the engine has is known to end soon: nothing of it is to be
// stopped, either. The caller holds Backend.mu.
func (p *proc) shortLocked() bool {
	all := int64(0)
	for _, j := range p.sent {
		if j.stop {
			return false
		}
		all = sum(all, j.plan.nanos)
	}
	return all >= 0
}

// readyLocked reports whether a run of the job can be ordered now. The caller holds Backend.mu.
func (p *proc) readyLocked(j *job) bool {
	for _, x := range j.plan.pieces {
		if x.host == nil && (x.in != p || len(x.dirty) > 0 && j.scrub == nil && (x.scrub == nil || x.scrub.proc != p || x.scrub.count < len(x.dirty))) {
			return false
		}
	}
	if j.rec != nil {
		return p.recorded[j.rec]
	}
	for _, x := range j.plan.pieces {
		if x.host != nil && !p.imported[x].ready() {
			return false
		}
	}
	for _, v := range j.plan.variants {
		if !p.compiled[v] {
			return false
		}
	}
	return true
}

// sendLocked orders a run.
//
// +checklocks:b.mu
func (b *Backend) sendLocked(p *proc, j *job) {
	b.unqueueLocked(j)
	if p.skipping { // nothing of it is left
		p.skipping = false
		p.postLocked(&wire.Order{Kind: wire.Resume})
	}

	o := orders.Get().(*wire.Order)
	defer orders.Put(o)
	*o = wire.Order{Kind: wire.RunOnce, Entries: j.plan.entries}
	if j.rec != nil {
		*o = wire.Order{Kind: wire.Run, ID: uint32(j.rec.id)}
	}
	p.seq++
	o.Seq = p.seq
	j.seq, j.proc = p.seq, p
	p.sent = append(p.sent, j)
	p.context, p.used, b.active = j.work.Context, j.order, p
	if err := p.send(o, -1); err != nil {
		b.failLocked(p, err.Error(), false)
	}
}

var orders = sync.Pool{New: func() any { return new(wire.Order) }}

// unqueueLocked takes a job from those that wait.
//
// +checklocks:b.mu
func (b *Backend) unqueueLocked(j *job) {
	if i := slices.Index(b.queue, j); i >= 0 {
		b.queue = slices.Delete(b.queue, i, i+1)
	}
}

// requeueLocked puts a job back to its place: it has not begun.
//
// +checklocks:b.mu
func (b *Backend) requeueLocked(j *job) {
	j.proc = nil
	i, _ := slices.BinarySearchFunc(b.queue, j.order, func(k *job, order uint64) int { return int(int64(k.order - order)) })
	b.queue = slices.Insert(b.queue, i, j)
}

// learnLocked notes how long a job has taken.
//
// +checklocks:b.mu
func (b *Backend) learnLocked(j *job, took time.Duration) {
	nanos := min(int64(max(took, 0)), mostAhead)
	switch {
	case j.rec != nil:
		j.plan.nanos = nanos
	case len(j.plan.entries) == 1 && j.plan.steps[0].variant != nil:
		v := j.plan.steps[0].variant
		v.groups, v.nanos = j.plan.entries[0].Grid.Count(), nanos
	}
}

// endLocked says that a job of the core is over, for its context. It is false if it was dropped.
//
// +checklocks:b.mu
func (b *Backend) endLocked(j *job, how outcome.Outcome, begun bool) bool {
	if j.scrub != nil || b.jobs[j.id] != j {
		return false
	}
	delete(b.jobs, j.id)
	if how.Cause == outcome.TrapCause {
		j.work.Context.Trap()
	}
	if begun && how.Kind != outcome.OK {
		j.work.Context.Fail(j.work.Round)
	}
	return true
}
