// Package verify admits programs: it decides whether a bundle is a program of the
// profile (docs/program-profile.md), and finds out what the engines and the core
// have to know about it.
//
// The bytes are hostile. Admit neither panics nor takes more than time and memory
// in proportion to them. What it refuses it refuses with a stable code (Codes), the
// opcode and the byte offset, and the source line where the module tells.
//
// Of what it admits, engines may take for granted:
//
//   - every instruction is one of the profile's, with operands and a result of the
//     types it has; every id is defined before its use, and dominates it
//   - control flow is structured: constructs nest, a block lies in exactly one, a
//     loop goes back once, a branch that parts lanes has a merge block
//   - calls form no cycle, and call what they name; the sizes of variables, values
//     and the program with calls expanded are within Limits
//   - a pointer leads into one variable or parameter, which following access chains
//     and copies back finds; buffers have explicit layouts without overlap
//   - bindings are read and written no further than Info says
//
// Nothing is known of values: indexes, divisors and the lanes that meet at a barrier
// are the engines' to check. An engine still returns an error, and does not panic,
// for a program that it cannot make sense of.
//
// The data's way is the module's: preamble ─► annotations ─► globals ─► interfaces ─►
// code (rules, arith, composite, memory, group, glsl, structure) ─► calls ─► flow
// (uniform, races: warnings) ─► result (manifest).
package verify
