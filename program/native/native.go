package native

import (
	"capgpu/program"
)

// Call is one launch: as the program's Info says, bounded and copied.
type Call struct {
	Grid, Block program.Dim3
	Bindings    [][]byte // may change or vanish under the body at any time
	Inline      []byte
}

// Body is a fast body of one program.
type Body struct {
	// Items is how many independent pieces of work a call has (rows, elements,
	// heads). ok is false for a call that the body cannot do exactly as the program
	// would: one that would trap, or is misaligned. The lane engine does those.
	Items func(c *Call) (items uint64, ok bool)
	// Run does items lo to hi-1. Ranges may run beside each other and in any order;
	// no result depends on how they are cut. A range of Grain items takes well below
	// a millisecond.
	Run   func(c *Call, lo, hi uint64)
	Grain func(c *Call) uint64
}
