package verify

import (
	"slices"

	"capgpu/program"
	"capgpu/program/spirv"
)

// Program is an admitted program: a module in the profile, with the facts that the
// engines need to run it. It does not change.
type Program struct {
	Info   program.Info
	Module *spirv.Module
	Entry  *spirv.Function
	// Bindings are the variables of the storage and uniform buffers, by binding; 0 if
	// the module does not use it. A variable that is an array of buffers has a binding
	// for each, one after the other.
	Bindings []spirv.ID
	// Views are further variables of bindings that have one, by their (first) binding.
	Views map[spirv.ID]int
	// Inline is the variable of the push constant block; 0 if there is none.
	Inline spirv.ID
	// Shared are the variables in workgroup memory that the entry point reaches.
	Shared []spirv.ID
	// BlockIDs are the constants of the workgroup's size in x, y, z if the launch
	// decides it; 0 if Info.Block does.
	BlockIDs [3]spirv.ID
	// Sizes are all constants with the SpecId of one of BlockIDs, by dimension: 0 is x.
	Sizes map[spirv.ID]int
	// Dynamic is the constant that is the length of the dynamic array; 0 if none.
	Dynamic spirv.ID
	// Lengths are the lengths of array types, by type; of the dynamic array there is
	// none.
	Lengths map[spirv.ID]uint32
	// Chosen is the first instruction by which a pointer leads where only the run of
	// the program tells: into one of several variables, or into a part of one that a
	// function was handed; nil if there is none.
	Chosen *spirv.Inst
	// Constants are the values of specialisation constants that the manifest sets.
	Constants map[spirv.ID]uint64
}

// Binding is the binding of a buffer's variable, the first one of an array; -1 if the
// variable is no buffer.
func (p *Program) Binding(variable spirv.ID) int {
	if b, ok := p.Views[variable]; ok {
		return b
	}
	if variable != 0 {
		return slices.Index(p.Bindings, variable)
	}
	return -1
}
