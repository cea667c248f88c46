// Package revoke takes capabilities back: a tree of nodes (tenant, session,
// object) in which closing one closes everything below it.
//
// Every use of an object is bracketed by Enter and Leave on its node:
//
//	if err := n.Enter(); err != nil {
//		return err // why it was closed
//	}
//	defer n.Leave()
//
// Enter is lock-free and allocates nothing. Closing a node is one store: from
// that moment Enter refuses on the node and on everything below it, however many
// that is. Then, and only for those below, in this order:
//
//	refuse ──► wake ──► leave ──► quiesce ──► unmap ──► scrub ──► release
//	 store    Done      wait      Ops.Quiesce Ops.Unmap Ops.Scrub Ops.Release
//
// Each step is finished for the whole subtree before the next one begins, and
// within a step children come before their parents. There is no other way to run
// an Ops function, each runs exactly once, and a panic in one is reported by
// Close and stops none of the others.
//
// What may block whom. Close works in the calling goroutine and holds no lock
// while it waits or runs an Ops function; siblings, parents and everything beside
// the subtree go on undisturbed. Two rules for the caller, because Close waits:
//
//   - Between Enter and Leave do not wait for the closing (Close, Finished) of
//     that node or one above it: it waits for the Leave. CloseAsync is the way:
//     it refuses at once and leaves the rest to a goroutine.
//   - In an Ops function do not wait for the closing of a node of the subtree that
//     is being closed, nor of one above it; CloseAsync is harmless there, too. Ops
//     functions must not Enter the subtree: it refuses.
//
// A Close that waits longer than it should tells whom for: Node.String.
//
// Locks: Node.mu guards the list of a node's children and its channels; it is
// held for a few instructions (a few per child while a closer lists them), never
// two at once, and never across a call out of this package.
package revoke
