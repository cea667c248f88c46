// Package spirv reads SPIR-V modules (Khronos SPIR-V specification, version 1.6
// revision 1, unified): the grammar, the parser, control flow graphs, and the
// disassembler.
//
// A module is not trusted. Parse accepts any bytes without a panic, in time and
// memory in proportion to them. It checks only that a module's words follow the
// grammar and its sections their order; package verify checks types, dominance and
// the profile. A parsed Module does not change, and may be used by any number of
// goroutines.
//
//	bytes ─► Parse ─► Module ─► NewCFG(function) ─► dominators, orders
//	                     └────► Disassemble
//
// Files: module.go has the module; parse.go, operands.go, body.go, line.go the
// parser; codes.go its refusals; index.go names and decorations; cfg.go; disasm.go,
// names.go. gen generates zgrammar.go from Khronos's published grammar.
package spirv
