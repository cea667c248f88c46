package verify

import (
	"capgpu/program"
	"capgpu/program/spirv"
)

// Program is an admitted program: a module in the profile, with the facts that the
// engines need to run it. It does not change.
type Program struct {
	Info   program.Info
	Module *spirv.Module
	Entry  *spirv.Function
	// Bindings are the variables of the storage buffers, by binding; 0 if the
	// manifest names a binding that the module does not use.
	Bindings []spirv.ID
	// Inline is the variable of the push constant block; 0 if there is none.
	Inline spirv.ID
	// Shared are the variables in workgroup memory that the entry point reaches.
	Shared []spirv.ID
	// BlockIDs are the constants of the workgroup's size in x, y, z if the launch
	// decides it; 0 if Info.Block does.
	BlockIDs [3]spirv.ID
	// Dynamic is the constant that is the length of the dynamic array; 0 if none.
	Dynamic spirv.ID
	// Lengths are the lengths of array types, by type; of the dynamic array there is
	// none.
	Lengths map[spirv.ID]uint32
	// Constants are the values of specialisation constants that the manifest sets.
	Constants map[spirv.ID]uint64
}
