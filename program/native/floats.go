package native

import "math"

// An x86 processor takes a hundred times as long for a product with a subnormal
// operand, or result, as for others. A client could thus make any body a hundred
// times slower than its Nanos, and a call of assembly many milliseconds long.
// Assembly of bodies with a tolerance therefore treats subnormal operands and
// results as zeros (DAZ and FTZ in MXCSR). Assembly of exact bodies keeps them, and
// is slow with them.
//
// Such a function sets the mode when it begins, and restores it when it ends: the
// thread's next Go code, which may belong to another goroutine, has all its
// numbers. A function that ends in a memory fault does not reach its end; see
// RestoreFloats.

// subnormals is an assembly function's treatment of subnormal numbers: a value of
// MXCSR.
type subnormals uint32

const (
	keep  subnormals = 0x1F80 // all exceptions masked, to nearest: what Go's threads have
	flush subnormals = 0x9FC0 // and FTZ and DAZ
)

// flushed is a result after flushing: a zero of its sign instead of a subnormal
// number.
func flushed(v float32) float32 {
	if !assembly() {
		return v
	}
	if b := math.Float32bits(v); b&0x7F800000 == 0 {
		return math.Float32frombits(b & 0x80000000)
	}
	return v
}
