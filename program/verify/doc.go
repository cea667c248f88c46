// Package verify admits programs: it decides whether a bundle is a program of the
// profile (docs/program-profile.md), and extracts the facts that the engines and
// the core need.
//
// The bytes are hostile. Admit never panics, and takes time and memory in
// proportion to them. A refusal has a stable code (Codes), the opcode and the byte
// offset, and the source line if the module has lines.
//
// Engines may rely on these facts about an admitted program:
//
//   - every instruction is one of the profile's, with operands and a result of the
//     types it has; every id is defined before its use, and dominates it
//   - control flow is structured: constructs nest, a block lies in exactly one, a
//     loop goes back once, a branch that parts lanes has a merge block
//   - calls form no cycle, and call what they name; the sizes of variables, values
//     and the program with calls expanded are within Limits
//   - a pointer leads into one variable or parameter, found by following access chains
//     and copies back; where Program.Chosen is set, one to a buffer or to shared memory
//     may also come from a choice, a call, a variable that holds pointers, or nowhere
//   - buffers have explicit layouts without overlap
//   - bindings are read and written only as Info permits
//
// Nothing is known of values: engines check indexes, divisors and the lanes that
// meet at a barrier. An engine still returns an error, and does not panic, for a
// program that it does not understand.
//
// The checks follow the module's order: preamble ─► annotations ─► globals ─►
// interfaces ─► code (rules, arith, composite, memory, group, glsl, structure) ─►
// pointers ─► calls ─► flow (uniform, races: warnings) ─► result (manifest).
package verify
