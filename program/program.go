// Package program defines the terms of programs: the bundle, its manifest, the
// facts about an admitted program, and the refusal.
//
// A program is SPIR-V in the profile of docs/program-profile.md. It travels as a
// bundle: the module and a manifest, addressed by the SHA-256 of the bundle's
// bytes. The manifest is a claim of its maker: the verifier takes from the module
// everything that the module shows, and refuses a manifest that contradicts it.
//
//	bundle ─► Parse ─► spirv.Parse ─► verify.Admit ─► lane.Compile, native.Lookup
package program

import (
	"fmt"

	"capgpu/gpuerr"
)

// Access is a program's use of a binding.
type Access uint8

const (
	Read      Access = 1
	Write     Access = 2
	ReadWrite        = Read | Write
)

// String is "read", "write" or "readWrite".
func (a Access) String() string {
	switch a {
	case Read:
		return "read"
	case Write:
		return "write"
	case ReadWrite:
		return "readWrite"
	}
	return fmt.Sprintf("access(%d)", uint8(a))
}

// Dim3 counts in x, y, z.
type Dim3 struct{ X, Y, Z uint32 }

// Count is the product, for dimensions with a product that is known to fit.
func (d Dim3) Count() uint64 { return uint64(d.X) * uint64(d.Y) * uint64(d.Z) }

// Limits of the profile; docs/program-profile.md.
const (
	MaxBundleBytes   = 1 << 20
	MaxManifestBytes = 64 << 10
	MaxBindings      = 32
	MaxInlineBytes   = 256
	MaxBlockThreads  = 1024
	MaxSharedBytes   = 48 << 10 // static and dynamic together
	MaxStackBytes    = 16 << 10 // private memory of one lane, along the deepest path of calls
	MaxNameBytes     = 64
)

// SpecShared is the SpecId that by convention is the length, in elements, of the one
// dynamic array of shared memory; see Manifest.DynamicShared.
const SpecShared = 3

// Info is the facts about an admitted program. All of them come from the module, or
// agree with it.
type Info struct {
	Name   string
	Digest [32]byte // SHA-256 of the bundle

	Entry    string
	Bindings []Binding // in the order of descriptor sets and bindings
	Inline   []Field   // of the push constant block, by offset
	// InlineBytes is the size of the push constant block; a launch has exactly this
	// many bytes.
	InlineBytes uint32
	// Block is the workgroup of every launch. If BlockFree is set, the module takes
	// it from the launch, and Block is its default.
	Block     Dim3
	BlockFree bool
	// SharedBytes is static shared memory, with the default Block where the size of
	// the workgroup decides: see SharedFor. If DynamicElementBytes is not 0, there is
	// also a dynamic array of elements of this size.
	SharedBytes         uint32
	SharedSize          SharedSize // nil: SharedBytes for all
	DynamicElementBytes uint32
	StackBytes          uint32
	Features            []Feature // sorted
	// OrderDependent means that results may depend on the order in which workgroups
	// run, even without a data race: the program has atomics on global memory that
	// do not commute exactly, or uses their results.
	OrderDependent bool
	Grid           Grid
	Tolerance      Tolerance
	Tags           []string
	Warnings       []Diagnostic
}

// SharedSize computes static shared memory from the size of the workgroup.
type SharedSize interface {
	// Bytes is more than any limit where an array would have no length. It takes
	// some microseconds at most, and allocates nothing.
	Bytes(block Dim3) uint64
}

// SharedFor is the static shared memory in bytes of a launch with this workgroup.
func (i *Info) SharedFor(block Dim3) uint64 {
	if i.SharedSize == nil {
		return uint64(i.SharedBytes)
	}
	return i.SharedSize.Bytes(block)
}

// Diagnostic is one finding about a module. Its code is stable: "E-GPU-4010" and
// the like are the diagnostics of the Abstract Device Machine (docs/adm.md),
// "SPV-…" our own (docs/program-profile.md).
type Diagnostic struct {
	Code    string `json:"code"`
	Op      string `json:"op,omitempty"`     // "OpFunctionCall"
	Off     uint32 `json:"offset"`           // byte offset in the module
	Source  string `json:"source,omitempty"` // "reduce.comp:12", where the module tells
	Message string `json:"message"`
}

// String is "E-GPU-4010 OpFunctionCall at byte 812 (reduce.comp:12): message".
func (d Diagnostic) String() string {
	s := d.Code
	if d.Op != "" {
		s += " " + d.Op
	}
	s += fmt.Sprintf(" at byte %d", d.Off)
	if d.Source != "" {
		s += " (" + d.Source + ")"
	}
	return s + ": " + d.Message
}

// Refusal is the error of a program that is not admitted.
type Refusal struct{ Diagnostic }

// Refuse makes a Refusal.
func Refuse(code, op string, off uint32, format string, args ...any) *Refusal {
	return &Refusal{Diagnostic{Code: code, Op: op, Off: off, Message: fmt.Sprintf(format, args...)}}
}

// Error is the finding as text.
func (r *Refusal) Error() string { return r.String() }

// Unwrap makes a Refusal a gpuerr.Program.
func (r *Refusal) Unwrap() error { return &gpuerr.Error{Code: gpuerr.Program, Msg: r.String()} }
