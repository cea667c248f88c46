// Package oracle compares engines: our own with each other and with independent
// ones, which share neither code nor misunderstandings with them.
//
// An Engine runs a Launch. Two engines agree if they leave the same bytes in every
// binding, or floats within a tolerance if the kernel allows one. The tests run the
// kernels of the library and random ones (kernelgen). If random ones differ, the
// kernel is reduced as far as possible and printed.
package oracle

import (
	"encoding/binary"
	"fmt"
	"math"

	"capgpu/bench/kernelgen"
	"capgpu/program"
)

// Launch is one launch of a module.
type Launch struct {
	SPIRV    []byte
	Manifest *program.Manifest
	Grid     program.Dim3
	Block    program.Dim3
	// BlockFree means that specialisation constants 0, 1, 2 are the workgroup.
	BlockFree bool
	Inline    []byte
	Bindings  [][]byte // not changed; nil for an unused one
	// Kernel is the random kernel of this module, if it is one.
	Kernel *kernelgen.Kernel
}

// Engine runs launches, one at a time.
type Engine interface {
	Name() string
	// Run returns the bindings after the launch.
	Run(l *Launch) ([][]byte, error)
	Close()
}

// Tolerances are by binding; a missing or zero one means bit for bit.
type Tolerances map[int]program.Tolerance

// Difference is the first place where two engines differ.
type Difference struct {
	A, B    string // names of the engines
	Binding int
	Word    int
	WordA   uint32
	WordB   uint32
	Count   int // of words that differ, in this binding
}

// Error shows the place, and both words as integers and floats.
func (d *Difference) Error() string {
	return fmt.Sprintf("binding %d word %d (and %d more): %#08x (%d, %g) by %s, %#08x (%d, %g) by %s", d.Binding, d.Word, d.Count-1,
		d.WordA, int32(d.WordA), math.Float32frombits(d.WordA), d.A, d.WordB, int32(d.WordB), math.Float32frombits(d.WordB), d.B)
}

// Compare compares two engines' bindings.
func Compare(nameA, nameB string, a, b [][]byte, t Tolerances) error {
	if len(a) != len(b) {
		return fmt.Errorf("%d bindings by %s, %d by %s", len(a), nameA, len(b), nameB)
	}

	for i := range a {
		if len(a[i]) != len(b[i]) {
			return fmt.Errorf("binding %d: %d bytes by %s, %d by %s", i, len(a[i]), nameA, len(b[i]), nameB)
		}

		var d *Difference
		for at := 0; at < len(a[i]); at += 4 {
			x, y := word(a[i], at), word(b[i], at)
			if x == y || near(x, y, t[i]) {
				continue
			}
			if d == nil {
				d = &Difference{A: nameA, B: nameB, Binding: i, Word: at / 4, WordA: x, WordB: y}
			}
			d.Count++
		}

		if d != nil {
			return d
		}
	}

	return nil
}

// word is the word at an offset; the last one may be short.
func word(b []byte, at int) uint32 {
	var w [4]byte
	copy(w[:], b[at:])
	return binary.LittleEndian.Uint32(w[:])
}

func near(x, y uint32, t program.Tolerance) bool {
	if t == (program.Tolerance{}) {
		return false
	}
	a, b := float64(math.Float32frombits(x)), float64(math.Float32frombits(y))
	if math.IsNaN(a) || math.IsNaN(b) {
		return math.IsNaN(a) && math.IsNaN(b)
	}
	return math.Abs(a-b) <= t.Abs+t.Rel*math.Abs(b)
}
