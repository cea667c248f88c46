// Package lanetest is the model that package lane is held to: an interpreter that
// runs an admitted program straight from its module, one lane and one instruction
// at a time. It is slow, and obvious.
//
// Each lane has a stack of calls with the values of its ids, and runs until it
// comes to an instruction that lanes do together: a barrier of the workgroup, a
// subgroup operation or an atomic one. There it waits. Once every lane waits or has
// ended, the lanes that are earliest in the program go on: together those that are
// at the same dynamic instance of the instruction, which is the same place in the
// same calls with the same iterations of the loops around each.
//
//	lane 0 ──────┐ subgroupAdd  (call of f, loop i=2)
//	lane 1 ──────┤
//	lane 2 ───────────┐ subgroupAdd  (call of f, loop i=3): waits for the others
//	lane 3 ────────────────────────┐ barrier: waits for all
//
// What lanes do between such instructions must not depend on each other, which is
// so for programs without data races.
//
// Nothing here is shared with lane or lane/vec, so that a mistake in one is not one
// in the other.
package lanetest
