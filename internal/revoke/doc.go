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
// an Ops function, each runs exactly once (Scrub until there is no more), and a
// panic in one is reported by Close and stops none of the others.
//
// A subtree can have many nodes, and its closer may only want to know that nothing of it is
// used or runs any more. For that a Cut divides the work. Nodes are urgent (those that run by
// themselves, and those with such nodes below) or parts:
//
//	Cut:   refuse ──► wake, leave, quiesce: of the urgent nodes
//	later: wake, leave, quiesce: of the parts ──► unmap ──► scrub ──► release: of all
//
// The steps of a Cut grow with the number of urgent nodes, not with that of parts. A rule
// lets it promise that no goroutine is inside a part: a goroutine that enters a part is
// inside the urgent node above it. The rest of the work is a Rest, done in Steps. A Close is
// a Cut and all of its Rest.
//
// Blocking. Close and Cut work in the calling goroutine and hold no lock while they wait or
// run an Ops function; siblings, parents and everything beside the subtree go on undisturbed.
// Two rules for the caller, because they wait:
//
//   - Between Enter and Leave do not wait for the closing (Close, Cut, Finished) of
//     that node or one above it: it waits for the Leave. CloseAsync is the way:
//     it refuses at once and leaves the rest to a goroutine.
//   - In an Ops function do not wait for the closing of a node of the subtree that
//     is being closed, nor of one above it; CloseAsync is harmless there, too. Ops
//     functions must not Enter the subtree: it refuses.
//
// Node.String of a Close that takes too long says which node it waits for.
//
// Locks: Node.mu guards the lists of a node's children and its channels; it is
// held for a few instructions (a few for each of 64 children while a closer lists
// them), never two at once, and never across a call out of this package.
package revoke
