package revoke

import (
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"time"

	"capgpu/gpuerr"
)

// Rest is the work of one closer, or the work that a Cut leaves. One goroutine at a time has
// it.
type Rest struct {
	root    *Node
	closure *closure
	nodes   []*Node // claimed, parents before children; the root and the urgent ones first
	others  []*Node // below root, claimed by another closer
	listed  int     // nodes that have their parts in nodes
	busy    []*Node // parts that a goroutine was inside when they were listed
	phase   phase
	next    int // index in nodes of the last that still has the phase before it, plus 1
	failed  []error
	visits  int // for tests: children taken off a list, and urgent nodes quiesced
}

// phase is how far the work after the cut is.
type phase int

const (
	listing phase = iota
	awaiting
	quiescing
	unmapping
	scrubbing
	releasing
	finished
)

func newRest(n *Node, c *closure) *Rest { return &Rest{root: n, closure: c} }

// Step continues the work for about so long, and reports whether all of it is done. It must
// be called until it is. It waits for goroutines inside a part, if any, and for earlier
// closers.
func (r *Rest) Step(d time.Duration) (done bool) {
	began := time.Now()
	for n := 1; r.phase < finished; n++ {
		if slow := r.one(); (slow || n%clockEvery == 0) && time.Since(began) >= d {
			break
		}
	}
	return r.phase == finished
}

// clockEvery is how many pieces of work, of some tens of nanoseconds each, are done
// before the clock is read.
const clockEvery = 64

// Err joins the panics of Ops functions so far.
func (r *Rest) Err() error { return errors.Join(r.failed...) }

// run does it all.
func (r *Rest) run() {
	// Deferred, because an Ops function may end the goroutine.
	defer r.runLate()
	defer close(r.closure.cut)
	defer r.endCut()
	r.collectUrgent()
	for r.phase == listing { // before any wait, so that all are awake
		r.listOne()
	}
	r.cut()
}

func (r *Rest) runLate() {
	defer func() {
		if r.phase < finished {
			r.runLate()
		}
	}()
	r.Step(math.MaxInt64)
}

// one does a piece of the work; slow says that it may have taken its time.
func (r *Rest) one() (slow bool) {
	switch r.phase {
	case listing:
		r.listOne()
	case awaiting:
		r.awaitOne()
		slow = true
	case quiescing:
		r.each("quiesce", func(n *Node) bool {
			if n.kind == part { // the others are, since the cut
				call(n.ops.Quiesce)
			}
			return false
		})
	case unmapping:
		r.each("unmap", func(n *Node) bool { call(n.ops.Unmap); return false })
	case scrubbing:
		r.each("scrub", func(n *Node) bool {
			slow = n.ops.Scrub != nil
			return slow && n.ops.Scrub()
		})
	case releasing:
		r.releaseOne()
	}

	return slow
}

// endPhase goes to the next one.
func (r *Rest) endPhase() {
	r.phase++
	r.next = len(r.nodes)
}

// listOne claims and lists some parts of a node, or notes that it has no more.
// Nothing can be added below a node that is listed: it was closing before.
func (r *Rest) listOne() {
	if r.listed == len(r.nodes) {
		r.endPhase()
		return
	}
	n := r.nodes[r.listed]
	if r.takeChildren(n, part) {
		return
	}
	r.listed++
	// No goroutine enters any more. One that was inside is seen here, or has left. The cut
	// waits for those in urgent nodes.
	if n.kind == part && n.inside.Load()&countMask != 0 {
		r.busy = append(r.busy, n)
	}
}

// awaitOne waits for another closer, or for those inside a part. All parts are awake.
func (r *Rest) awaitOne() {
	switch {
	case len(r.others) > 0:
		<-r.others[0].Finished()
		r.others = r.others[1:]
	case len(r.busy) > 0:
		r.busy[0].drain()
		r.busy = r.busy[1:]
	default:
		r.endPhase()
	}
}

// each calls a function of one node, the last of those that have not had it, again
// and again while it says that there is more.
func (r *Rest) each(what string, f func(*Node) (more bool)) {
	if r.next == 0 {
		r.endPhase()
		return
	}
	r.next--
	r.guard(what, r.nodes[r.next], func(n *Node) {
		if f(n) {
			r.next++
		}
	})
}

// releaseOne releases a node.
func (r *Rest) releaseOne() {
	if r.next == 0 {
		r.endPhase()
		r.nodes = nil
		return
	}
	r.next--
	n := r.nodes[r.next]
	r.nodes[r.next] = nil
	defer r.finish(n)
	r.guard("release", n, func(n *Node) { call(n.ops.Release) })
}

// guard notes a panic of an Ops function.
func (r *Rest) guard(what string, n *Node, f func(*Node)) {
	defer func() {
		if p := recover(); p != nil {
			err := gpuerr.New(gpuerr.Internal, "%s of %s panicked: %v\n%s", what, n.name, p, debug.Stack())
			r.failed = append(r.failed, fmt.Errorf("revoke: %w", err))
		}
	}()
	f(n)
}

// finish takes n out of the tree and wakes the waiters.
func (r *Rest) finish(n *Node) {
	if n == r.root && n.parent != nil {
		n.unlink()
	}
	n.ops = Ops{}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n == r.root {
		n.failure = errors.Join(r.failed...)
	}
	n.isFinished = true
	if n.finished != nil {
		close(n.finished)
	}
}
