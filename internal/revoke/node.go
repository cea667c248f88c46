package revoke

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Ops dismantles the object of a node. Each function may be nil.
type Ops struct {
	// Urgent nodes have ended when a Cut returns: those that run by themselves, and those
	// with such nodes below. The parent of one is urgent, too, or a root.
	Urgent bool

	Quiesce func()             // nothing touches it any more when this returns
	Unmap   func()             // no address reaches it any more
	Scrub   func() (more bool) // nothing of its content is left; called again while there is more
	Release func()             // its charges and names are free for others
}

// Node is one object that can be taken back.
//
//	           Enter, NewChild                        Enter, NewChild: refused with the cause
//	          ┌──────┐                               ┌──────┐
//	          ▼      │   Close or Cut of it         ▼      │
//	NewChild ─► live ─┴── or an ancestor ────► closing ──────┴─► finished
//	                                         │ wake Done       Finished is closed
//	                                         │ wait for Leave  Close returns
//	                                         │ Ops, phase by phase
//
// A node is live while closing is nil in it and in all its ancestors. The first goroutine to
// set a node's closing is its closer and the only one to dismantle it. The closer of an
// ancestor claims in this way the nodes below that are not being closed already, and waits
// for the rest.
type Node struct {
	parent *Node // nil at the root; never changes
	name   string

	// closing is nil until someone closes the node; then it never changes.
	closing atomic.Pointer[closure]
	// inside is the number of those between Enter and Leave, and the flags below.
	inside atomic.Uint64

	mu sync.Mutex
	// first are the heads of the lists of its children: the urgent ones, and the parts. The
	// closer of n takes them off.
	// +checklocks:mu
	first [2]*Node
	// +checklocks:mu
	done chan struct{} // made at the first request
	// +checklocks:mu
	doneClosed bool
	// +checklocks:mu
	finished chan struct{} // made at the first request
	// +checklocks:mu
	isFinished bool
	// +checklocks:mu
	failure error // of its Ops

	prev, next *Node // siblings, guarded by parent.mu

	kind int // which of its parent's lists it is in; never changes

	// ops and drained belong to the closer.
	ops     Ops
	drained chan struct{} // made when someone is inside
}

// The lists of children.
const (
	urgent = iota
	part
)

// Flags in Node.inside.
const (
	waiting   = 1 << 32 // the closer waits on drained for the count to be 0
	signalled = 1 << 33 // drained is closed

	countMask = 1<<32 - 1
)

// closure is one closing; everything it claims points to it.
type closure struct {
	cause error
	cut   chan struct{} // closed when what Cut waits for is done
	err   error         // of the Ops until then; set before cut is closed
}

// NewRoot makes a tree.
func NewRoot(name string) *Node { return &Node{name: name, kind: urgent} }

// NewChild makes a node below n that closes with it. While n or an ancestor is closing it is
// refused with the cause, and o is not called: the caller undoes its preparations.
func (n *Node) NewChild(name string, o Ops) (*Node, error) {
	child := &Node{parent: n, name: name, ops: o, kind: part}
	if o.Urgent {
		child.kind = urgent
		if n.kind != urgent {
			panic("revoke: " + name + " is urgent and would not be found below " + n.name)
		}
	}

	n.mu.Lock()
	defer n.mu.Unlock()

	// The closer sets closing before it locks n.mu to take the children. So either
	// it is seen here, or the closer finds the child in the list.
	if c := n.closed(); c != nil {
		return nil, c.cause
	}

	child.next = n.first[child.kind]
	if child.next != nil {
		child.next.prev = child
	}

	n.first[child.kind] = child
	return child, nil
}

// closed is the closing that n is subject to, nil while it is live.
func (n *Node) closed() *closure {
	for at := n; at != nil; at = at.parent {
		if c := at.closing.Load(); c != nil {
			return c
		}
	}
	return nil
}

// Enter begins a use of n. Every Enter that returns nil must be followed by one Leave; until
// then n is not dismantled. Otherwise it returns why n is closing. A goroutine that uses a
// part is inside the urgent node above it as well: see Cut.
func (n *Node) Enter() error {
	// First be counted, then look. The closer first sets closing, then reads the
	// count. So either it is seen here, or the closer waits for this use.
	n.inside.Add(1)
	for at := n; at != nil; at = at.parent {
		if c := at.closing.Load(); c != nil {
			n.Leave()
			return c.cause
		}
	}
	return nil
}

// Leave ends a use. It panics when there is none, which is a bug of the caller.
func (n *Node) Leave() {
	if now := n.inside.Add(^uint64(0)); now >= countMask { // a flag is set, or it went below 0
		n.left(now)
	}
}

// left wakes the closer when the last use has ended.
func (n *Node) left(now uint64) {
	if now&countMask == countMask {
		panic("revoke: " + n.name + ": Leave without Enter")
	}
	// An Enter that is being refused may come in between; its Leave then signals.
	if now == waiting && n.inside.CompareAndSwap(waiting, waiting|signalled) {
		close(n.drained)
	}
}

// Live is true until n or an ancestor is closed.
func (n *Node) Live() bool { return n.closed() == nil }

// Err is why n is closing, nil while it is live. (When n and an ancestor are
// closed at the same instant, it may be the ancestor's cause first and then n's.)
func (n *Node) Err() error {
	if c := n.closed(); c != nil {
		return c.cause
	}
	return nil
}

// Name is the name given to NewRoot or NewChild.
func (n *Node) Name() string { return n.name }

// Done is closed as soon as n refuses entries; that of a part below a Cut when its
// dismantling begins. Waiters between Enter and Leave select on it.
func (n *Node) Done() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.done == nil {
		n.done = make(chan struct{})
	}
	// The closer of n or of an ancestor sets closing before it takes n.mu to wake.
	if !n.doneClosed && n.closed() != nil {
		n.doneClosed = true
		close(n.done)
	}
	return n.done
}

// wakeLocked closes Done.
//
// +checklocks:n.mu
func (n *Node) wakeLocked() {
	if n.done != nil && !n.doneClosed {
		n.doneClosed = true
		close(n.done)
	}
}

// ClosedByParent reports whether the closer of n closes its parent as well. It is false while
// n is live.
func (n *Node) ClosedByParent() bool {
	c := n.closing.Load()
	return c != nil && n.parent != nil && n.parent.closing.Load() == c
}

// Finished is closed when n and everything below it is dismantled.
func (n *Node) Finished() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.finished == nil {
		n.finished = make(chan struct{})
		if n.isFinished {
			close(n.finished)
		}
	}
	return n.finished
}

// String formats the state of n and how many goroutines are inside, for logs.
func (n *Node) String() string {
	state := "live"
	if c := n.closed(); c != nil {
		state = fmt.Sprintf("closing (%v)", c.cause)
	}
	n.mu.Lock()
	if n.isFinished {
		state = "finished"
	}
	n.mu.Unlock()
	path := n.name
	for at := n.parent; at != nil; at = at.parent {
		path = at.name + "/" + path
	}
	return fmt.Sprintf("%s: %s, %d inside", path, state, n.inside.Load()&countMask)
}
