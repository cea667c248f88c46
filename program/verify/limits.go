package verify

import "capgpu/program"

// Limits bound a program's demands on an engine. They belong to the profile: a host
// may lower them, and then admits less.
type Limits struct {
	BlockThreads uint32
	SharedBytes  uint32 // static
	StackBytes   uint32
	Bindings     uint32
	InlineBytes  uint32

	TypeDepth int // of arrays and structs in each other
	Nesting   int // of constructs in each other, in one function
	// ValueBytes bounds one value in registers, RegisterBytes all values of the
	// program together, with calls expanded.
	ValueBytes    uint32
	RegisterBytes uint64
	// Instructions bounds the program with calls expanded.
	Instructions uint64
	Warnings     int // more are left out
}

// DefaultLimits are those of docs/program-profile.md.
func DefaultLimits() Limits {
	return Limits{
		BlockThreads:  program.MaxBlockThreads,
		SharedBytes:   program.MaxSharedBytes,
		StackBytes:    program.MaxStackBytes,
		Bindings:      program.MaxBindings,
		InlineBytes:   program.MaxInlineBytes,
		TypeDepth:     16,
		Nesting:       128,
		ValueBytes:    16 << 10,
		RegisterBytes: 4 << 20,
		Instructions:  1 << 18,
		Warnings:      32,
	}
}
