package ring

import (
	"math/bits"

	"capgpu/gpuerr"
)

// Check says everything about an entry that can be said without knowing its
// session: that the operation is known, that fields called zero are zero, that
// handles are not 0, and that ranges are aligned, do not overflow, and (for
// arguments) lie in an arena of argBytes. It allocates nothing; every refusal is
// gpuerr.Invalid and names the field.
func Check(e *Entry, argBytes uint32) error {
	if e.Op >= numOps {
		return errOp
	}
	if e.Flags != 0 && !(e.Op == OpWait && e.Flags == WaitOrderOnly) {
		return errFlags
	}
	if e.Zero != 0 {
		return errZero
	}
	switch e.Op {
	case OpNop:
		if e.Object|e.A|e.B|e.C|e.D != 0 || e.Count != 0 || e.DeadlineMicros != 0 {
			return errZero
		}
		return nil
	case OpLaunch:
		return checkLaunch(e, argBytes)
	case OpReplay:
		return checkReplay(e, argBytes)
	}
	if e.Object == 0 {
		return errObject
	}
	if e.Count != 0 {
		return errCount
	}
	switch e.Op {
	case OpCopy:
		dstOff, src, srcOff, n := e.CopyRange()
		switch {
		case src == 0:
			return errSource
		case n == 0:
			return errLength
		case dstOff+n < n || srcOff+n < n:
			return errRange
		}
	case OpFill:
		off, n, _ := e.FillRange()
		switch {
		case e.B>>32 != 0 || e.C != 0:
			return errZero
		case n == 0:
			return errLength
		case off%4 != 0 || n%4 != 0:
			return errFillAlign
		case off+n < n:
			return errRange
		}
	case OpSignal, OpWait:
		if e.B|e.C|e.D != 0 || e.DeadlineMicros != 0 {
			return errZero
		}
	}
	return nil
}

func checkLaunch(e *Entry, argBytes uint32) error {
	if e.Object == 0 {
		return errObject
	}
	if _, n := e.ArgRange(); uint64(n) != uint64(e.Count)*BindingBytes+uint64(e.InlineBytes()) {
		return errArgBytes
	}
	if err := checkArgs(e, argBytes); err != nil {
		return err
	}
	g, b := e.Grid(), e.Block()
	if b == (Dim3{}) { // the program's
		if g == b { // the natural grid
			return nil
		}
		b = Dim3{1, 1, 1}
	}
	if g.X == 0 || g.Y == 0 || g.Z == 0 || b.X == 0 || b.Y == 0 || b.Z == 0 {
		return errDim
	}
	// The product of two dimensions of the grid, and that of three of a block (16 bits each),
	// fits; the rest is checked.
	over1, groups := bits.Mul64(uint64(g.X)*uint64(g.Y), uint64(g.Z))
	over2, _ := bits.Mul64(groups, uint64(b.X)*uint64(b.Y)*uint64(b.Z))
	if over1|over2 != 0 {
		return errThreads
	}
	return nil
}

// checkArgs checks that the arguments lie in the arena.
func checkArgs(e *Entry, argBytes uint32) error {
	off, n := e.ArgRange()
	if off%ArgAlign != 0 {
		return errArgAlign
	}
	if uint64(off)+uint64(n) > uint64(argBytes) {
		return errArgRange
	}
	return nil
}

// Made once, because a hostile client gets as many of them as it likes.
var (
	errOp        = gpuerr.New(gpuerr.Invalid, "op: no such operation")
	errFlags     = gpuerr.New(gpuerr.Invalid, "flags: must be 0 (of a wait 0 or 1), and a block dimension at most 65535")
	errZero      = gpuerr.New(gpuerr.Invalid, "a field that the operation does not use is not zero")
	errObject    = gpuerr.New(gpuerr.Invalid, "object: 0 is no handle")
	errCount     = gpuerr.New(gpuerr.Invalid, "count: must be 0 for this operation")
	errSource    = gpuerr.New(gpuerr.Invalid, "src: 0 is no handle")
	errLength    = gpuerr.New(gpuerr.Invalid, "length: must be 1 or more")
	errRange     = gpuerr.New(gpuerr.Invalid, "offset: offset plus length overflows")
	errFillAlign = gpuerr.New(gpuerr.Invalid, "offset, length: a fill takes multiples of 4")
	errDim       = gpuerr.New(gpuerr.Invalid, "grid, block: some dimensions are 0; give all of them, none of the block for the program's, or none at all for the natural grid")
	errThreads   = gpuerr.New(gpuerr.Invalid, "grid, block: the number of threads overflows")
	errArgBytes  = gpuerr.New(gpuerr.Invalid, "argBytes: is not 32 for each binding plus inlineBytes")
	errArgAlign  = gpuerr.New(gpuerr.Invalid, "argOff: must be a multiple of 8")
	errArgRange  = gpuerr.New(gpuerr.Invalid, "argOff, argBytes: beyond the argument arena")
)
