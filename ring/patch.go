package ring

import (
	"encoding/binary"
	"math"

	"capgpu/gpuerr"
)

// PatchKind is what a patch changes.
type PatchKind uint8

const (
	PatchInline  PatchKind = iota // up to MaxPatchInline inline bytes of a launch
	PatchBinding                  // which part of its buffer a binding is, or an operand of a copy or fill
	numPatchKinds
)

// Sizes of patches.
const (
	PatchBytes     = 32
	MaxPatches     = 4096 // of one replay
	MaxPatchInline = 16   // bytes of one patch
)

// Patch is one change to a recorded list, for one replay of it. It is four words of
// the arena, where a launch has its bindings:
//
//	0  entry, kind << 16, bytes << 24, at << 32
//	1  A
//	2  B
//	3  0
type Patch struct {
	Entry uint16 // of the list, from 0
	Kind  PatchKind
	Bytes uint8  // PatchInline: how many; else 0
	At    uint32 // PatchInline: offset of the first; PatchBinding: which binding. A copy has 0, its destination, and 1, its source
	// A and B are the new bytes, little-endian, those beyond Bytes being ignored; or the
	// offset and the length of the part. Length 0 is as recorded.
	A, B uint64
}

// InlinePatch replaces inline bytes of a launch: at most MaxPatchInline, or it is a
// patch that CheckPatch refuses.
func InlinePatch(entry uint16, off uint32, data []byte) Patch {
	var b [MaxPatchInline]byte
	copy(b[:], data)
	p := Patch{Entry: entry, Kind: PatchInline, Bytes: uint8(min(len(data), math.MaxUint8)), At: off}
	p.A, p.B = binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])
	return p
}

// BindingPatch says which part of its buffer a binding is.
func BindingPatch(entry uint16, binding uint32, off, n uint64) Patch {
	return Patch{Entry: entry, Kind: PatchBinding, At: binding, A: off, B: n}
}

// Inline is the new bytes.
func (p *Patch) Inline() (b [MaxPatchInline]byte) {
	binary.LittleEndian.PutUint64(b[:], p.A)
	binary.LittleEndian.PutUint64(b[8:], p.B)
	return b
}

// Words is the patch as it lies in the arena.
func (p *Patch) Words() [PatchBytes / 8]uint64 {
	return [...]uint64{uint64(p.Entry) | uint64(p.Kind)<<16 | uint64(p.Bytes)<<24 | uint64(p.At)<<32, p.A, p.B, 0}
}

// SetWords reads four words, and says everything about them that can be said without
// knowing the list.
func (p *Patch) SetWords(w []uint64) error {
	_ = w[3]
	p.Entry, p.Kind, p.Bytes, p.At = uint16(w[0]), PatchKind(w[0]>>16), uint8(w[0]>>24), uint32(w[0]>>32)
	p.A, p.B = w[1], w[2]
	switch {
	case p.Kind >= numPatchKinds:
		return errPatchKind
	case w[3] != 0:
		return errPatchZero
	case p.Kind == PatchInline && (p.Bytes == 0 || p.Bytes > MaxPatchInline):
		return errPatchBytes
	case p.Kind == PatchBinding && p.Bytes != 0:
		return errPatchZero
	case p.Kind == PatchBinding && p.A+p.B < p.B:
		return errRange
	}
	return nil
}

// ReplayEntry runs a recorded list. PushReplay fills in the patches.
func ReplayEntry(userData, list uint64, deadlineMicros uint32) Entry {
	return Entry{Op: OpReplay, DeadlineMicros: deadlineMicros, UserData: userData, Object: list}
}

// checkReplay checks a replay as far as its patches.
func checkReplay(e *Entry, argBytes uint32) error {
	_, n := e.ArgRange()
	switch {
	case e.Object == 0:
		return errObject
	case e.A|e.B|e.C != 0:
		return errZero
	case e.Count > MaxPatches:
		return errPatches
	case n != uint32(e.Count)*PatchBytes:
		return errPatchArgs
	}
	return checkArgs(e, argBytes)
}

var (
	errPatches    = gpuerr.New(gpuerr.Invalid, "count: a replay has at most %d patches", MaxPatches)
	errPatchArgs  = gpuerr.New(gpuerr.Invalid, "argBytes: is not 32 for each patch")
	errPatchKind  = gpuerr.New(gpuerr.Invalid, "patch: no such kind")
	errPatchZero  = gpuerr.New(gpuerr.Invalid, "patch: a field that is not used is not zero")
	errPatchBytes = gpuerr.New(gpuerr.Invalid, "patch: replaces 1 to %d bytes", MaxPatchInline)
)
