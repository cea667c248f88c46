package gpu

import (
	"container/heap"
	"slices"
)

// Fair share is start-time fair queueing on measured device time, on two levels:
// tenants by weight, and the sessions of one tenant equally, so that opening more
// sessions buys a tenant nothing. Each flow has a virtual time, the device time
// it used divided by its weight; who has used least is next. A flow that was idle
// starts at the present of its level, so idling saves nothing up.
//
// A job is charged an estimate (what the session's last job took) when it is
// sent, and the difference when it ends.

// maxSent bounds what one tenant has in the device's FIFO, and so what one session
// has: enough to keep the device busy, too little to make others wait behind a
// heap of it, however many sessions it opens.
const maxSent = 2

// Bounds of what one job counts, in nanoseconds: too little would let empty jobs
// through without end, and one wrong clock must not shut a flow out for ever.
const (
	minJobCost   = 1_000
	firstJobCost = 100_000
)

// flow is one competitor on its level.
type flow struct {
	virtual int64
	index   int   // in its level's heap; -1: not in it
	parent  *flow // of a session: the tenant's
	weight  int64
	sent    int           // jobs that the device has
	has     [maxSent]*job // of a session: these
	below   level         // of a tenant: its sessions

	// Of a session.
	ready    *queue // queues with ready jobs, a circle; the one whose turn it is
	estimate int64
}

func newFlow(parent *flow, weight uint32) *flow {
	return &flow{parent: parent, weight: int64(max(weight, 1)), index: -1, estimate: firstJobCost}
}

// level is a heap of the flows that could run something now.
type level struct {
	flows   []*flow
	present int64 // the virtual time of the last one chosen
	heeds   bool  // of the top: the device holds back what needs work that fails
}

func (l *level) Len() int           { return len(l.flows) }
func (l *level) Less(i, j int) bool { return l.flows[i].virtual < l.flows[j].virtual }
func (l *level) Swap(i, j int) {
	l.flows[i], l.flows[j] = l.flows[j], l.flows[i]
	l.flows[i].index, l.flows[j].index = i, j
}
func (l *level) Push(x any) {
	f := x.(*flow)
	f.index = len(l.flows)
	l.flows = append(l.flows, f)
}
func (l *level) Pop() any {
	f := l.flows[len(l.flows)-1]
	l.flows[len(l.flows)-1] = nil
	l.flows = l.flows[:len(l.flows)-1]
	f.index = -1
	return f
}

// place puts f into the level's heap or takes it out, and keeps the order.
func (l *level) place(f *flow, runnable bool) {
	switch {
	case runnable && f.index < 0:
		if f.sent == 0 { // it was idle, not held back by its bound
			l.raise(f)
		}
		heap.Push(l, f)
	case runnable:
		heap.Fix(l, f.index)
	case f.index >= 0:
		heap.Remove(l, f.index)
	}
}

// update puts a session's flow and its tenant's where they belong.
func (top *level) update(f *flow) {
	t := f.parent
	t.below.place(f, f.ready != nil && f.sent < maxSent && (top.heeds || !f.mustWait()))
	top.place(t, len(t.below.flows) > 0 && t.sent < maxSent)
}

// mustWait reports whether what is next of a session reads what a job that the device has
// writes, in all its queues. If it does not in one, that one's turn it is.
func (f *flow) mustWait() bool {
	if f.sent == 0 {
		return false
	}
	for first := f.ready; ; {
		if !slices.ContainsFunc(f.has[:], func(j *job) bool { return j != nil && f.ready.readyHead.needs(j) }) {
			return false
		}
		if f.ready = f.ready.circleNext; f.ready == first {
			return true
		}
	}
}

// charge adds nanoseconds (also negative) to a session's flow and its tenant's.
func (f *flow) charge(nanos int64) {
	f.virtual += nanos
	f.parent.virtual += nanos / f.parent.weight
}

// spend charges a session's flow time that it had without a job. If nobody competes
// with it, its level goes along: as with jobs, who had the device alone owes nothing
// to those who come later, but for the last of it.
func (top *level) spend(f *flow, nanos int64) {
	f.parent.below.lift(f)
	top.lift(f.parent)
	f.charge(nanos)
	top.update(f)
}

// lift brings a flow that was idle to the present of its level, or the present to a
// flow that is alone.
func (l *level) lift(f *flow) {
	if f.index < 0 && f.sent == 0 {
		l.raise(f)
	}
	if len(l.flows) == 0 || len(l.flows) == 1 && f.index == 0 {
		l.present = max(l.present, f.virtual)
	}
}

// raise brings a flow to the present of its level.
func (l *level) raise(f *flow) { f.virtual = max(f.virtual, l.present) }

// next takes the job whose turn it is, nil if there is none.
func (top *level) next() *job {
	if len(top.flows) == 0 {
		return nil
	}
	t := top.flows[0]
	f := t.below.flows[0]
	top.present, t.below.present = t.virtual, f.virtual
	q := f.ready
	j := q.readyHead
	q.readyHead = j.next
	j.next = nil
	f.ready = q.circleNext
	if q.readyHead == nil {
		q.readyTail = nil
		q.leaveCircle(f)
	}
	f.has[slices.Index(f.has[:], nil)] = j
	f.sent++
	f.parent.sent++
	j.estimate = f.estimate
	f.charge(j.estimate)
	top.update(f)
	return j
}

// returned settles what a sent job really took.
func (top *level) returned(j *job, nanos int64) {
	f := j.queue.session.flow
	nanos = max(nanos, minJobCost)
	f.has[slices.Index(f.has[:], j)] = nil
	f.sent--
	f.parent.sent--
	f.charge(nanos - j.estimate)
	f.estimate = nanos
	top.update(f)
}

// pushReady appends a list of jobs to a queue's ready list.
func (top *level) pushReady(q *queue, head, tail *job) {
	f := q.session.flow
	if q.readyHead == nil {
		q.readyHead = head
		q.joinCircle(f)
	} else {
		q.readyTail.next = head
	}
	q.readyTail = tail
	top.update(f)
}

// joinCircle makes q the last of its session's queues to have its turn.
func (q *queue) joinCircle(f *flow) {
	if f.ready == nil {
		q.circleNext, q.circlePrev = q, q
		f.ready = q
		return
	}
	q.circleNext, q.circlePrev = f.ready, f.ready.circlePrev
	q.circlePrev.circleNext, q.circleNext.circlePrev = q, q
}

// leaveCircle takes q out of its session's circle.
func (q *queue) leaveCircle(f *flow) {
	if q.circleNext == q {
		f.ready = nil
	} else {
		q.circlePrev.circleNext, q.circleNext.circlePrev = q.circleNext, q.circlePrev
		if f.ready == q {
			f.ready = q.circleNext
		}
	}
	q.circleNext, q.circlePrev = nil, nil
}

// readyQueues lists a session's queues with jobs that wait for their turn.
func (f *flow) readyQueues() []*queue {
	var all []*queue
	for q := f.ready; q != nil; {
		all = append(all, q)
		if q = q.circleNext; q == f.ready {
			break
		}
	}
	return all
}
