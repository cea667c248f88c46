package gpu

import (
	"container/heap"
	"time"
)

// Fair share is start-time fair queueing on measured device time, on two levels:
// tenants by weight, and the sessions of one tenant equally, so that opening more
// sessions buys a tenant nothing. Each flow has a virtual time, the device time
// it used divided by its weight; the flow that has used least is next. A flow that was
// idle starts at the present of its level, so idling saves nothing up.
//
// A job is charged an estimate (what the session's last job took) when it is
// sent, and the difference when it ends.

// A tenant may have sentLeast jobs in the device, and more while they are short: enough to
// keep the device busy with jobs of microseconds, and too few to make others wait behind a
// heap of them, however many sessions the tenant opens.
const (
	sentLeast  = 2
	sentMost   = 16
	sentCredit = 200 * time.Microsecond // of estimated device time
)

// Bounds of what one job counts, in nanoseconds: too little would let empty jobs
// through without end, and one wrong clock must not shut a flow out for ever.
const (
	minJobCost   = 1_000
	firstJobCost = 100_000
)

// flow is one competitor on its level.
type flow struct {
	virtual   int64
	index     int   // in its level's heap; -1: not in it
	parent    *flow // of a session: the tenant's
	weight    int64
	sent      int   // jobs that the device has
	sentNanos int64 // what they are estimated to take
	below     level // of a tenant: its sessions

	// For a session.
	ready    *queue // queues with ready jobs, a circle; this one has the turn
	estimate int64
}

func newFlow(parent *flow, weight uint32) *flow {
	return &flow{parent: parent, weight: int64(max(weight, 1)), index: -1, estimate: firstJobCost}
}

// setWeight changes a tenant's share.
func (r *reactor) setWeight(f *flow, weight uint32) {
	r.mail.call(func() { f.weight = int64(max(weight, 1)) })
}

// hasCredit reports whether a tenant may have one more job in the device.
func (t *flow) hasCredit() bool {
	return t.sent < sentLeast || t.sent < sentMost && t.sentNanos < int64(sentCredit)
}

// level is a heap of the flows that could run something now.
type level struct {
	flows   []*flow
	present int64 // the virtual time of the last one chosen
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
		if f.sent == 0 { // it was idle, not held back by its credit
			f.virtual = max(f.virtual, l.present)
		}
		heap.Push(l, f)
	case runnable:
		if len(l.flows) > 1 {
			heap.Fix(l, f.index)
		}
	case f.index >= 0:
		heap.Remove(l, f.index)
	}
}

// update puts a session's flow and its tenant's where they belong.
func (top *level) update(f *flow) {
	t := f.parent
	t.below.place(f, f.ready != nil)
	top.place(t, len(t.below.flows) > 0 && t.hasCredit())
}

// charge adds nanoseconds (also negative) to a session's flow and its tenant's.
func (f *flow) charge(nanos int64) {
	f.virtual += nanos
	f.parent.virtual += nanos / f.parent.weight
}

// spend charges a session's flow time that it had without a job. If nobody competes
// with it, its level goes along: as with jobs, a flow that had the device alone owes
// nothing to those that come later, but for the last of it.
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
		f.virtual = max(f.virtual, l.present)
	}
	if len(l.flows) == 0 || len(l.flows) == 1 && f.index == 0 {
		l.present = max(l.present, f.virtual)
	}
}

// first is the job that has the turn, which next takes; nil if there is none.
func (top *level) first() *job {
	if len(top.flows) == 0 {
		return nil
	}
	return top.flows[0].below.flows[0].ready.ready.head
}

// next takes the job that has the turn. There is one.
func (top *level) next() *job {
	t := top.flows[0]
	f := t.below.flows[0]
	top.present, t.below.present = t.virtual, f.virtual
	q := f.ready
	j := q.ready.pop()
	f.ready = q.circle.next
	if q.ready.head == nil {
		q.leaveCircle(f)
	}

	f.sent++
	t.sent++
	j.flight.estimate = f.estimate
	t.sentNanos += f.estimate
	f.charge(f.estimate)
	top.update(f)

	return j
}

// returned settles what a sent job really took.
func (top *level) returned(j *job, nanos int64) {
	f := j.queue.session.flow
	nanos = max(nanos, minJobCost)
	f.sent--
	f.parent.sent--
	f.parent.sentNanos -= j.flight.estimate
	f.charge(nanos - j.flight.estimate)
	f.estimate = nanos
	top.update(f)
}

// putBack undoes next.
func (top *level) putBack(j *job) {
	q, f := j.queue, j.session().flow
	f.sent--
	f.parent.sent--
	f.parent.sentNanos -= j.flight.estimate
	f.charge(-j.flight.estimate)
	j.state = jobReady

	if j.next = q.ready.head; j.next == nil {
		q.joinCircle(f)
		q.ready.tail = j
	}

	q.ready.head = j
	top.update(f)
}

// pushReady appends a job to a queue's ready list.
func (top *level) pushReady(j *job) {
	q, f := j.queue, j.queue.session.flow
	j.state = jobReady
	if q.ready.head == nil {
		q.joinCircle(f)
	}
	if q.ready.push(j); f.index < 0 { // else nothing changes
		top.update(f)
	}
}

// remove takes the jobs of a queue that match off its ready list, and returns them in
// their order.
func (top *level) remove(q *queue, match func(*job) bool) (removed jobList) {
	if q.ready.head == nil {
		return removed
	}

	all := q.ready
	q.ready = jobList{}

	for j := all.pop(); j != nil; j = all.pop() {
		if match(j) {
			removed.push(j)
		} else {
			q.ready.push(j)
		}
	}

	if q.ready.head == nil {
		f := q.session.flow
		q.leaveCircle(f)
		top.update(f)
	}
	return removed
}

// jobList is a list through job.next.
type jobList struct{ head, tail *job }

func (l *jobList) push(j *job) {
	if j.next = nil; l.head == nil {
		l.head = j
	} else {
		l.tail.next = j
	}
	l.tail = j
}

// pop returns nil when the list is empty.
func (l *jobList) pop() *job {
	j := l.head
	if j == nil {
		return nil
	}

	if l.head = j.next; l.head == nil {
		l.tail = nil
	}

	j.next = nil
	return j
}

// circle is a queue's place among the queues of its session that have ready jobs.
type circle struct{ next, prev *queue }

// joinCircle makes q the last of its session's queues to have its turn.
func (q *queue) joinCircle(f *flow) {
	if f.ready == nil {
		q.circle = circle{q, q}
		f.ready = q
		return
	}
	q.circle = circle{f.ready, f.ready.circle.prev}
	q.circle.prev.circle.next, q.circle.next.circle.prev = q, q
}

// leaveCircle takes q out of its session's circle.
func (q *queue) leaveCircle(f *flow) {
	if q.circle.next == q {
		f.ready = nil
	} else {
		q.circle.prev.circle.next, q.circle.next.circle.prev = q.circle.next, q.circle.prev
		if f.ready == q {
			f.ready = q.circle.next
		}
	}

	q.circle = circle{}
}
