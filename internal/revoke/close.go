package revoke

import (
	"errors"
	"fmt"
	"runtime/debug"

	"capgpu/gpuerr"
)

// Close closes n and everything below it for the given cause (nil stands for a
// gpuerr.Revoked), and returns when all of it is dismantled. Entries are refused
// from its first instructions on. If n is being closed already, Close waits for
// that. The error, the same for all callers, tells of Ops functions of n and of
// those below that this closing dismantled which panicked. See the package
// comment for what must not wait for a Close.
func (n *Node) Close(cause error) error {
	if n.claim(newClosure(n, cause)) {
		n.dismantle()
	}
	<-n.Finished()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failure
}

// CloseAsync refuses entries as Close does and returns; the rest is done by a
// goroutine. Wait for Finished before taking away what the Ops functions need.
func (n *Node) CloseAsync(cause error) {
	if n.claim(newClosure(n, cause)) {
		go n.dismantle()
	}
}

// claim makes c the closing of n, unless n is closing already: the closer of an
// ancestor gets to n, too.
func (n *Node) claim(c *closure) bool {
	return n.closed() == nil && n.closing.CompareAndSwap(nil, c)
}

// dismantling is the work of one closer.
type dismantling struct {
	root   *Node
	nodes  []*Node // claimed, parents before children
	others []*Node // below root, claimed by another closer
	phase  int
	next   int // index in nodes of the last that still has the phase before it, plus 1
	failed []error
}

func (n *Node) dismantle() {
	d := &dismantling{root: n}
	d.collect()
	for _, other := range d.others {
		<-other.Finished()
	}
	for _, node := range d.nodes {
		node.drain()
	}
	d.next = len(d.nodes)
	d.runPhases()
}

// collect claims, wakes and lists everything below root. After it no child can
// be added to any listed node.
func (d *dismantling) collect() {
	c := d.root.closing.Load()
	d.nodes = append(d.nodes, d.root)
	for i := 0; i < len(d.nodes); i++ {
		node := d.nodes[i]
		node.wake()
		node.mu.Lock()
		for child := node.firstChild; child != nil; child = child.next {
			if child.closing.CompareAndSwap(nil, c) {
				d.nodes = append(d.nodes, child)
			} else {
				d.others = append(d.others, child)
			}
		}
		node.mu.Unlock()
	}
}

// drain waits until nobody is inside n. Its closing is set, so nobody can enter.
func (n *Node) drain() {
	if n.inside.Load()&countMask == 0 {
		return
	}
	n.drained = make(chan struct{})
	if n.inside.Or(waiting)&countMask == 0 {
		return // the last one left before it could see that it is waited for
	}
	<-n.drained
}

// The phases, in order. The last one also takes the node out of the tree.
var phases = [...]struct {
	name string
	run  func(*Node)
}{
	{"quiesce", func(n *Node) { call(n.ops.Quiesce) }},
	{"unmap", func(n *Node) { call(n.ops.Unmap) }},
	{"scrub", func(n *Node) { call(n.ops.Scrub) }},
	{"release", func(n *Node) { call(n.ops.Release) }},
}

func call(f func()) {
	if f != nil {
		f()
	}
}

// runPhases runs what is left of the phases.
func (d *dismantling) runPhases() {
	// A function that ends its goroutine (runtime.Goexit, as t.FailNow does) ends
	// the loop, but not this.
	defer func() {
		if d.phase < len(phases) {
			d.runPhases()
		}
	}()
	for ; d.phase < len(phases); d.phase++ {
		for d.next > 0 {
			d.next--
			d.runOne(d.nodes[d.next])
		}
		d.next = len(d.nodes)
	}
}

// runOne runs the current phase of one node, and finishes the node after the last.
func (d *dismantling) runOne(n *Node) {
	last := d.phase == len(phases)-1
	defer func() {
		if p := recover(); p != nil {
			err := gpuerr.New(gpuerr.Internal, "%s of %s panicked: %v\n%s", phases[d.phase].name, n.name, p, debug.Stack())
			d.failed = append(d.failed, fmt.Errorf("revoke: %w", err))
		}
		if last {
			n.finish(d)
		}
	}()
	phases[d.phase].run(n)
}

// finish takes n out of the tree and tells those who wait.
func (n *Node) finish(d *dismantling) {
	if n != d.root {
		// Whoever keeps a finished node must not keep its siblings. All that could
		// follow these links are this closer and others that have finished.
		n.prev, n.next = nil, nil
	} else if n.parent != nil {
		n.unlink()
	}
	n.ops = Ops{}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.firstChild = nil
	if n == d.root {
		n.failure = errors.Join(d.failed...)
	}
	n.isFinished = true
	if n.finished != nil {
		close(n.finished)
	}
}

// unlink takes n out of its parent's list. (Those that are closed with their
// parent stay in its list, which is dropped as a whole.)
func (n *Node) unlink() {
	p := n.parent
	p.mu.Lock()
	defer p.mu.Unlock()
	if n.prev != nil {
		n.prev.next = n.next
	} else if p.firstChild == n {
		p.firstChild = n.next
	}
	if n.next != nil {
		n.next.prev = n.prev
	}
	n.prev, n.next = nil, nil
}
