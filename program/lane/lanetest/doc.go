// Package lanetest is the reference model of package lane: an interpreter that runs
// an admitted program straight from its module, one lane and one instruction at a
// time. It is slow, and obvious.
//
// Each lane has a stack of calls with the values of its ids, and runs until it
// reaches an instruction that lanes do together: a barrier of the workgroup, a
// subgroup operation or an atomic one. There it waits. Once every lane waits or has
// ended, the lanes that are earliest in the program continue. Lanes continue
// together if they are at the same dynamic instance of the instruction: the same
// place in the same calls, with the same iterations of the loops around each.
//
//	lane 0 ──────┐ subgroupAdd  (call of f, loop i=2)
//	lane 1 ──────┤
//	lane 2 ───────────┐ subgroupAdd  (call of f, loop i=3): waits for the others
//	lane 3 ────────────────────────┐ barrier: waits for all
//
// Between such instructions lanes must be independent of each other, as they are in
// programs without data races.
//
// This package shares nothing with lane or lane/vec, so that they cannot share a
// mistake.
package lanetest
