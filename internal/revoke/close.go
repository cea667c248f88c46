package revoke

import (
	"errors"

	"capgpu/gpuerr"
)

// Close closes n and everything below it for the given cause (nil stands for a
// gpuerr.Revoked), and returns when all of it is dismantled. Entries are refused from its
// first instructions on. If n is being closed already, Close waits for that. The error, the
// same for all callers, joins the panics of the Ops functions that this closing ran. See the
// package comment for goroutines that must not wait for a Close.
func (n *Node) Close(cause error) error {
	if c := newClosure(n, cause); n.claim(c) {
		newRest(n, c).run()
	}
	<-n.Finished()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failure
}

// CloseAsync refuses entries as Close does and returns; a goroutine does the rest. Wait for
// Finished before taking away resources that the Ops functions need.
func (n *Node) CloseAsync(cause error) {
	if c := newClosure(n, cause); n.claim(c) {
		go newRest(n, c).run()
	}
}

// Cut closes n, which is urgent, as Close does, but returns earlier: when no goroutine is
// inside n or an urgent node below it, and these are quiesced. The number of parts does not
// matter. Cut passes the rest of the work to later, once, before any Cut of n returns; a Cut
// of a node that is already being closed waits for that closing to get as far. The error
// joins the panics of Ops functions so far.
//
// So a goroutine inside a part must be inside the urgent node above it, too.
func (n *Node) Cut(cause error, later func(*Rest)) (err error) {
	c := newClosure(n, cause)
	if !n.claim(c) {
		c = n.closed()
		<-c.cut
		return c.err
	}

	r := newRest(n, c)

	// Deferred, because an Ops function may end the goroutine.
	defer func() { err = c.err }()
	defer close(c.cut)
	defer func() { later(r) }()
	defer r.endCut()
	r.collectUrgent()
	r.cut()
	return nil
}

// claim makes c the closing of n, unless n is closing already: the closer of an
// ancestor gets to n, too.
func (n *Node) claim(c *closure) bool {
	return n.closed() == nil && n.closing.CompareAndSwap(nil, c)
}

// cut waits for the listed nodes and quiesces the urgent ones.
func (r *Rest) cut() {
	for _, other := range r.others {
		<-other.closing.Load().cut
	}
	for _, node := range r.nodes {
		node.drain()
	}
	r.next = len(r.nodes)
	r.quiesceUrgent()
}

// collectUrgent claims, wakes and lists the urgent nodes. After it nothing can be
// added to any of them.
func (r *Rest) collectUrgent() {
	r.nodes = append(r.nodes, r.root)
	for i := 0; i < len(r.nodes); i++ {
		for r.takeChildren(r.nodes[i], urgent) {
		}
	}
}

// takeMany is how many children are taken off a list in one go: n's lock is held
// meanwhile.
const takeMany = 64

// takeChildren wakes the waiters of n, takes children off one of its lists, claims them, and
// reports whether there may be more.
func (r *Rest) takeChildren(n *Node, kind int) (more bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wakeLocked()
	for range takeMany {
		child := n.first[kind]
		if child == nil {
			return false
		}
		r.visits++
		if n.first[kind] = child.next; child.next != nil {
			child.next.prev = nil
		}
		child.prev, child.next = nil, nil
		if child.closing.CompareAndSwap(nil, r.closure) {
			r.nodes = append(r.nodes, child)
		} else {
			r.others = append(r.others, child)
		}
	}

	return true
}

// quiesceUrgent runs the remaining quiesce steps.
func (r *Rest) quiesceUrgent() {
	for r.next > 0 {
		r.next--
		r.visits++
		if n := r.nodes[r.next]; n.kind == urgent { // the root may be a part
			r.guard("quiesce", n, func(n *Node) { call(n.ops.Quiesce) })
		}
	}
}

// endCut ends a cut, also one that was stopped by a function that ended its
// goroutine (runtime.Goexit, as t.FailNow does).
func (r *Rest) endCut() {
	if r.next > 0 {
		defer r.endCut()
		r.quiesceUrgent()
	}
	r.closure.err = errors.Join(r.failed...)
}

// drain waits until no goroutine is inside n.
func (n *Node) drain() {
	if drained := n.draining(); drained != nil {
		<-drained
	}
}

// draining returns a channel that is closed when no goroutine is inside n; nil if none is
// now. The closing of n is set, so no goroutine can enter, but one that is being refused is
// counted for an instant, also in a second call.
func (n *Node) draining() <-chan struct{} {
	if n.inside.Load()&countMask == 0 {
		return nil
	}
	if n.drained == nil {
		n.drained = make(chan struct{})
	}
	if old := n.inside.Or(waiting); old&countMask == 0 || old&signalled != 0 {
		return nil // the last one left, before it could see that it is waited for or after
	}
	return n.drained
}

func call(f func()) {
	if f != nil {
		f()
	}
}

// unlink takes n out of its parent's list, unless the parent's closer has done so.
func (n *Node) unlink() {
	p := n.parent
	p.mu.Lock()
	defer p.mu.Unlock()
	if n.prev != nil {
		n.prev.next = n.next
	} else if p.first[n.kind] == n {
		p.first[n.kind] = n.next
	}
	if n.next != nil {
		n.next.prev = n.prev
	}
	n.prev, n.next = nil, nil
}

// newClosure makes the closing of a node with a cause that is never nil.
func newClosure(n *Node, cause error) *closure {
	if cause == nil {
		cause = gpuerr.New(gpuerr.Revoked, "%s was closed", n.name)
	}
	return &closure{cause: cause, cut: make(chan struct{})}
}
