package iommu

import "math/rand/v2"

// node is one occupied range of a Space, and the gap before it: a treap ordered
// by address, in which each node knows the largest gap below it. The nodes are also
// a list in that order.
//
//	… [prev) gapStart ── gap ── start [this range) end, the gapStart of next …
type node struct {
	gapStart, start, end IOVA
	hole                 bool // not taken, but never there

	up, left, right *node
	prev, next      *node
	priority        uint32 // no smaller than those of left and right
	// How much fits into one gap of this subtree, at any page and at any huge page.
	pageFit, hugeFit IOVA
}

// newNode has a secret priority, so that no caller can make the tree deep.
func newNode() *node { return &node{priority: rand.Uint32()} }

// refresh sets the fits of n after it or a child of it has changed.
func (n *node) refresh() {
	n.pageFit, n.hugeFit = fit(n.gapStart, n.start, PageBytes), fit(n.gapStart, n.start, HugeBytes)
	if child := n.left; child != nil {
		n.pageFit, n.hugeFit = max(n.pageFit, child.pageFit), max(n.hugeFit, child.hugeFit)
	}
	if child := n.right; child != nil {
		n.pageFit, n.hugeFit = max(n.pageFit, child.pageFit), max(n.hugeFit, child.hugeFit)
	}
}

// refreshUp refreshes n and all that it is below.
func (n *node) refreshUp() {
	for ; n != nil; n = n.up {
		n.refresh()
	}
}

// fit returns how much of [start, end) follows its first multiple of align.
func fit(start, end, align IOVA) IOVA {
	if aligned := (start + align - 1) &^ (align - 1); aligned < end {
		return end - aligned
	}
	return 0
}

// first finds the lowest multiple of align, at or above from, with need free bytes after it,
// and the node after that gap. align is one of the two pages.
func (n *node) first(from, need, align IOVA) (IOVA, *node) {
	if n == nil || n.pageFit < need || align == HugeBytes && n.hugeFit < need {
		return 0, nil
	}
	if n.start > from {
		if at, hit := n.left.first(from, need, align); hit != nil {
			return at, hit
		}
		// Only the gap that contains from can be too small here.
		if low := max(n.gapStart, from); fit(low, n.start, align) >= need {
			return (low + align - 1) &^ (align - 1), n
		}
	}
	return n.right.first(from, need, align)
}

// at is the last node that starts at or below a.
func (n *node) at(a IOVA) *node {
	var found *node
	for n != nil {
		if n.start <= a {
			found, n = n, n.right
		} else {
			n = n.left
		}
	}
	return found
}

// insertBefore puts a fresh node right before n; the gaps of both are set already.
func (s *Space) insertBefore(n, fresh *node) {
	fresh.prev, fresh.next = n.prev, n
	if n.prev != nil {
		n.prev.next = fresh
	}
	n.prev = fresh
	if n.left == nil {
		n.left, fresh.up = fresh, n
	} else { // nothing lies between n and the one before it
		fresh.prev.right, fresh.up = fresh, fresh.prev
	}
	for fresh.up != nil && fresh.up.priority < fresh.priority {
		s.lift(fresh)
	}
	fresh.refreshUp() // n is among them, or was lifted over and is right
}

// lift swaps n with its parent. The parent's values are right then; those of n and of its new
// parent may not be.
func (s *Space) lift(n *node) {
	above := n.up
	s.replace(above, n)
	if above.left == n {
		above.left = n.right
		if n.right != nil {
			n.right.up = above
		}
		n.right = above
	} else {
		above.right = n.left
		if n.left != nil {
			n.left.up = above
		}
		n.left = above
	}

	above.up = n
	above.refresh()
}

// replace has by, which may be nil, where n is below another or is the root.
func (s *Space) replace(n, by *node) {
	switch {
	case n.up == nil:
		s.root = by
	case n.up.left == n:
		n.up.left = by
	default:
		n.up.right = by
	}
	if by != nil {
		by.up = n.up
	}
}

// remove takes n, which is not the last, out; its gap and its range are the next
// one's gap then. next is below n if anything is to the right of n, and else above.
func (s *Space) remove(n *node) {
	for n.left != nil && n.right != nil {
		if n.left.priority >= n.right.priority {
			s.lift(n.left)
		} else {
			s.lift(n.right)
		}
	}

	child, lowest := n.left, n.up // wrong values lie between here and the root
	if n.right != nil {
		child, lowest = n.right, n.next
	}

	s.replace(n, child)
	n.next.gapStart, n.next.prev = n.gapStart, n.prev
	if n.prev != nil {
		n.prev.next = n.next
	}

	lowest.refreshUp()
}
