package native

import "math"

// An x86 processor takes a hundred times as long for a product with a subnormal operand,
// or result, as for others. A client could thus make any body a hundred times slower than
// its Nanos, and a piece of assembly many milliseconds long. So assembly of bodies whose
// results have a tolerance takes subnormal numbers for zeros, operands and results (DAZ
// and FTZ in MXCSR); that of exact ones keeps them, and is as slow as they are.
//
// This is set when such a function begins, and set back where it ends: the Go code that
// the thread does next, maybe another's, has all its numbers. A function that ends in a
// memory fault does not come to its end; see RestoreFloats.

// subnormals says what an assembly function does with them: it is the value of MXCSR.
type subnormals uint32

const (
	keep  subnormals = 0x1F80 // all exceptions masked, to nearest: what Go's threads have
	flush subnormals = 0x9FC0 // and FTZ and DAZ
)

// flushed is what is left of a result where the assembly flushes: a zero of its sign
// instead of a subnormal number.
func flushed(v float32) float32 {
	if !assembly() {
		return v
	}
	if b := math.Float32bits(v); b&0x7F800000 == 0 {
		return math.Float32frombits(b & 0x80000000)
	}
	return v
}
