// Package native has fast bodies for important programs, found by the digest of
// their bundle, and tested to equal the lane engine within their tolerance.
//
//	Lookup(digest) ─► Items: how much, or "not this call" ─► Run, by ranges, anywhere
//
// A body stands for one program of package library: Go, and assembly for what
// amd64 processors have (AVX2 with FMA, AVX-512), chosen when the process starts. A
// library that changes has other digests; a test fails then.
//
// # Bodies
//
// A body does either exactly the same as the program, or nothing. Items checks only
// the shapes: a launch that would trap, or that wraps, is misaligned, or has
// bindings that overlap so that the order of work could show, is not done (ok is
// false). Run checks data that matter (tokens); it then may return false, and the
// lane engine does the launch, with its trap.
//
// # Memory
//
// Bindings are the client's: they change at any time, and may be unmapped. No value
// that was read from them becomes an address without a comparison after the read,
// and all lengths are those of Items. Assembly functions are leaves without a
// frame, so a fault in one is a Go panic with the address for a caller with
// debug.SetPanicOnFault, and no memory of ours is left half written. A Run
// allocates nothing in steady state. No assembly function runs for more than about
// a millisecond: the collector waits for it.
//
// # Numbers
//
// Elementwise bodies and rope give the program's bits; swiglu, softmax and attention
// have an exponential within 2.5e-7. Sums are made in another order than the
// program's, and with fused multiply-add: within the tolerance of the manifest. The
// order depends on the shapes and on the instruction set, not on how a call is cut
// into ranges nor on time: one machine gives the same bits always. A matrix product
// has the same bits on all processors with FMA.
//
// If the program has a tolerance, a body in assembly treats subnormal operands and
// results as zeros (floats.go), except in rope; norms do so only with an eps that
// hides them. Exact bodies keep them. A caller that recovers from a fault in a Run
// calls RestoreFloats.
//
// # Batches
//
// A model server puts rows of many requests into one launch, and no text may depend
// on which. In linear_*, rope_cache_f32, attention_cache_f32 and everything that
// works row by row, the result of row b of a batch is therefore, bit for bit, the
// result of that row in a batch of its own, for any other rows, any number of them,
// and any place of b among them. A linear layer converts every weight to its f32
// value. Each sum is one chain of fused additions for each lane of a register, in
// the order of the columns, with the lanes added in one order at the end. Several
// rows of x at a time are more such sums side by side, never other ones. The order
// of attention depends on the row's own position and on the size of a page only,
// and pages of 16 positions or more give the same bits whatever their size. (Which
// NaN comes out where several meet is open.)
package native
