// Package instrument rewrites admitted programs for devices that trap nothing.
//
// A GPU behind a vendor's library ends a launch with success whatever its lanes did:
// what they read outside a binding is 0, what they write there is dropped, and
// shared memory holds what an earlier kernel left. An instrumented module does what
// the lane engine does (docs/program-profile.md, Semantics), as far as it can, and
// says where a lane did something undefined: the first such act of a lane is
// recorded in a slot of the trap buffer.
//
//	verify.Admit ─► Instrument ─► Program.Module ─► the vendor's compiler
//	                          └─► Program.Decode ◄─ a slot of the trap buffer
//
// # What is rewritten
//
//   - Accesses. Each load, store and atomic operation makes its own access chain,
//     from the variable, of indices that were compared: with the length of their
//     array, and with the binding's length in bytes, to the byte. An index that is out
//     of range is recorded and becomes 0. So safety does not rest on robust buffer
//     access alone; a device has to have it for what lies at constant offsets.
//   - OpArrayLength is computed from the length of the binding, because a device has
//     no binding without bytes.
//   - Integer division by 0 is recorded, and done by 1. The least number by -1, shifts
//     by the width or more, floats outside the range of an integer, and bit fields
//     beyond the width are what they are on the lane engine. An index of a vector in
//     registers that is out of range is recorded.
//   - OpUnreachable is recorded, and returns.
//   - Private and Function variables, and OpUndef, are null. Shared memory is cleared by
//     all lanes before the program begins; this needs no feature of the device.
//   - Loops. A loop with a known number of rounds, and no other way out, is charged
//     before it begins. Any other looks at every PollRounds-th round of the lane whether
//     the stop word is set, or the lane has had more rounds than it may; then the lane
//     returns from the function, and its further loops end in their first round.
//   - Buffers are in set 0, and the binding of each is its number (verify.Program): an
//     array of buffers becomes a variable for each. Views of one buffer are Aliased.
//   - OpCopyMemory is a load and a store. Blocks that no lane comes to are cut.
//   - Names, source text and lines are left out, and decorations that would let a
//     compiler depart from the lane engine (RelaxedPrecision, NoSignedWrap, …). Without
//     a tolerance in the manifest, arithmetic on floats gets NoContraction.
//
// Nothing is recorded of a misaligned binding (a device's bindings are aligned), of
// barriers that lanes reach apart, and of races.
//
// # Interface of an instrumented module
//
// It needs the features of the program, and of the device robustBufferAccess.
// Entry point, workgroup and specialisation constants are the program's. The
// manifest's constants are not applied: the engine sets them with the pipeline. It sets
// the length of the dynamic array to at least 1, because SPIR-V has no empty arrays.
// All buffers are in set 0, each at its number (verify.Program) as the binding, and
// behind them the trap buffer, a storage buffer at Program.Binding. The push constants
// end with the number of the entry, a u32 at Program.EntryOff: behind the program's, so
// up to 260 bytes in all; a device may have fewer.
//
// The trap buffer has a head and a slot for each entry of a list, little-endian:
//
//	head     0  u32      first: the lowest entry that ended early; 0xFFFFFFFF: none
//	         4  u32      stop: not 0 ends loops
//	       256           slots, of 256 bytes each
//
//	slot     0  u32      site: 0, or where in the program; written once, by compare-and-swap
//	         4  u32      lane: LocalInvocationIndex
//	         8  u32[3]   WorkgroupId
//	        20  u32[24]  indices of the access
//	       124  u32      in: rounds that the loops of a lane may have together
//	       128  u32[32]  in: lengths of the bindings in bytes
//
// ArmHead and ArmSlot write what is in; First and Program.Decode read what is out.
// A slot is armed before each run of its entry, and the descriptors of bindings cover
// the lengths in the slot; a binding without bytes gets any piece of memory.
//
// An entry does nothing if an earlier one has ended early: its lanes return at once
// where first is below their entry. Entry n of a list therefore runs behind a
// barrier for the trap buffer wherever entry n-1 must not be followed. While a list
// runs the host writes stop and nothing else. Where stop lies decides how soon it is
// seen (docs/gpus.md). A lane that stop or the bound of rounds ends may leave others
// at a barrier without it; lanes that have returned do not count there on any
// device that is known, and a workgroup that waits all the same is killed.
//
// # Which trap is told
//
// A lane claims the slot before each barrier of the workgroup, before the branch behind
// which nothing is left but to return, and when it returns:
// what another lane makes of a wrong value behind a barrier comes too late. It writes
// its words when it returns, so a slot is decoded when its launch has ended. The lane
// that comes first is told. The lane engine tells the first in its own order, so the
// two may name different lanes, and different places if lanes went different ways.
//
// Nothing here is trusted but the verifier: Instrument takes time and memory in
// proportion to the module, and never panics on an admitted one. It refuses with
// CodeFlow the control flow that it cannot bound, pointers that are chosen when the
// program runs (verify.Program.Chosen), an array of buffers with an index
// that an OpSpecConstantOp computes, and a structure in shared memory with an array that
// has its length from the launch. A slot is the word of a device: Decode reads each
// word once, and bounds it.
//
// Files: instrument.go the rewriter, module.go the sections, entry.go prologue and
// helpers, flow.go blocks and loops, graph.go their nesting, count.go loops that need no
// look, tail.go ends of lanes, access.go memory, buffers.go variables of buffers, arith.go the rest, emit.go
// words, types.go layouts, slot.go the trap buffer.
package instrument
