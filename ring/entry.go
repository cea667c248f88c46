package ring

import (
	"encoding/binary"
	"math"
)

// Op is what a submission entry asks for.
type Op uint8

const (
	OpNop    Op = iota // completes OK
	OpLaunch           // run a program
	OpCopy             // copy between buffers
	OpFill             // write a 32-bit pattern
	OpSignal           // advance a fence when all before has ended
	OpWait             // hold the queue until a fence has reached a value
	OpReplay           // run a recorded list
	numOps
)

var opNames = [numOps]string{"nop", "launch", "copy", "fill", "signal", "wait", "replay"}

func (o Op) String() string {
	if o < numOps {
		return opNames[o]
	}
	return "unknown"
}

// Sizes of the wire.
const (
	EntryBytes      = 64
	CompletionBytes = 32
	BindingBytes    = 32
	MinEntries      = 2
	MaxEntries      = 4096
	ArgAlign        = 8
	MaxArgBytes     = 64 << 20 // of an arena
)

// Entry is one submission. Which field means what depends on Op: use the
// constructors and accessors.
type Entry struct {
	Op             Op
	Flags          uint8 // of a wait: WaitOrderOnly or 0; else 0
	Count          uint16
	DeadlineMicros uint32
	UserData       uint64 // the client's own: comes back with the completion
	Object         uint64
	A, B, C, D     uint64
	Zero           uint64 // 0
}

// WaitOrderOnly is a flag of a wait: what follows goes on also if the point did not end
// ok. It then has to do with the order only, not with the outcome.
const WaitOrderOnly = 1

// Dim3 counts in x, y and z.
type Dim3 struct{ X, Y, Z uint32 }

// LaunchEntry runs a program. Push fills in the bindings and inline arguments.
// A zero block is the program's, and with a zero grid the launch is the natural one;
// a block dimension is at most 65535, and a larger one makes an entry that Check
// refuses.
func LaunchEntry(userData, program uint64, grid, block Dim3, sharedBytes, deadlineMicros uint32) (e Entry) {
	e.SetLaunch(userData, program, grid, block, sharedBytes, deadlineMicros)
	return e
}

// SetLaunch makes e what LaunchEntry returns. Where entries are made by the million it is
// much faster: a struct that is filled field by field and then copied as a whole is read
// in larger pieces than it was written, and such a read waits until all stores before it
// are in the cache, also those to memory that the driver has.
func (e *Entry) SetLaunch(userData, program uint64, grid, block Dim3, sharedBytes, deadlineMicros uint32) {
	e.Op, e.Flags, e.Count, e.DeadlineMicros = OpLaunch, 0, 0, deadlineMicros
	if max(block.X, block.Y, block.Z) > math.MaxUint16 {
		e.Flags = 1 // it does not fit the wire; Check refuses the flag
	}
	e.UserData, e.Object = userData, program
	e.A = uint64(grid.X) | uint64(grid.Y)<<32
	e.B = uint64(grid.Z) | uint64(uint16(block.X))<<32 | uint64(uint16(block.Y))<<48
	e.C = uint64(uint16(block.Z)) | uint64(sharedBytes)<<32
	e.D, e.Zero = 0, 0
}

// CopyEntry copies n bytes between buffers.
func CopyEntry(userData, dst, dstOff, src, srcOff, n uint64, deadlineMicros uint32) Entry {
	return Entry{Op: OpCopy, DeadlineMicros: deadlineMicros, UserData: userData, Object: dst, A: dstOff, B: src, C: srcOff, D: n}
}

// FillEntry writes a pattern; off and n are multiples of 4.
func FillEntry(userData, buffer, off, n uint64, pattern, deadlineMicros uint32) Entry {
	return Entry{Op: OpFill, DeadlineMicros: deadlineMicros, UserData: userData, Object: buffer, A: off, B: uint64(pattern), D: n}
}

// SignalEntry advances a fence to value once all before it has ended.
func SignalEntry(userData, fence, value uint64) Entry {
	return Entry{Op: OpSignal, UserData: userData, Object: fence, A: value}
}

// WaitEntry holds the queue until a fence has reached value.
func WaitEntry(userData, fence, value uint64) Entry {
	return Entry{Op: OpWait, UserData: userData, Object: fence, A: value}
}

// WaitOrderEntry is WaitEntry, but that the queue goes on however the point ended.
func WaitOrderEntry(userData, fence, value uint64) Entry {
	return Entry{Op: OpWait, Flags: WaitOrderOnly, UserData: userData, Object: fence, A: value}
}

// OrderOnly of a wait.
func (e *Entry) OrderOnly() bool { return e.Flags&WaitOrderOnly != 0 }

// NopEntry completes OK.
func NopEntry(userData uint64) Entry { return Entry{Op: OpNop, UserData: userData} }

// Grid of a launch, in workgroups.
func (e *Entry) Grid() Dim3 {
	return Dim3{X: uint32(e.A), Y: uint32(e.A >> 32), Z: uint32(e.B)}
}

// Block of a launch, in threads.
func (e *Entry) Block() Dim3 {
	return Dim3{X: uint32(e.B>>32) & 0xffff, Y: uint32(e.B >> 48), Z: uint32(e.C) & 0xffff}
}

// InlineBytes of a launch.
func (e *Entry) InlineBytes() uint32 { return uint32(e.C>>16) & 0xffff }

// SharedBytes of a launch: dynamic shared memory.
func (e *Entry) SharedBytes() uint32 { return uint32(e.C >> 32) }

// ArgRange is where in the arena the arguments of a launch or replay lie.
func (e *Entry) ArgRange() (off, n uint32) { return uint32(e.D), uint32(e.D >> 32) }

// Copy's operands: Object is the destination buffer.
func (e *Entry) CopyRange() (dstOff, src, srcOff, n uint64) { return e.A, e.B, e.C, e.D }

// Fill's operands: Object is the buffer.
func (e *Entry) FillRange() (off, n uint64, pattern uint32) { return e.A, e.D, uint32(e.B) }

// FenceValue of a signal or wait: Object is the fence.
func (e *Entry) FenceValue() uint64 { return e.A }

// entryWords is how many words an entry is.
const entryWords = EntryBytes / 8

// Words is the entry as it lies in the submission queue.
func (e *Entry) Words() (w [EntryBytes / 8]uint64) {
	e.store(&w)
	return w
}

func (e *Entry) store(w *[entryWords]uint64) {
	w[0] = uint64(e.Op) | uint64(e.Flags)<<8 | uint64(e.Count)<<16 | uint64(e.DeadlineMicros)<<32
	w[1], w[2], w[3], w[4], w[5], w[6], w[7] = e.UserData, e.Object, e.A, e.B, e.C, e.D, e.Zero
}

// SetWords reads them. It checks nothing; see Check.
func (e *Entry) SetWords(w *[EntryBytes / 8]uint64) {
	e.Op, e.Flags, e.Count, e.DeadlineMicros = Op(w[0]), uint8(w[0]>>8), uint16(w[0]>>16), uint32(w[0]>>32)
	e.UserData, e.Object, e.A, e.B, e.C, e.D, e.Zero = w[1], w[2], w[3], w[4], w[5], w[6], w[7]
}

// Encode writes the 64 bytes of the wire.
func (e *Entry) Encode(b *[EntryBytes]byte) {
	for i, w := range e.Words() {
		binary.LittleEndian.PutUint64(b[8*i:], w)
	}
}

// Decode reads them. It checks nothing; see Check.
func (e *Entry) Decode(b *[EntryBytes]byte) {
	var w [entryWords]uint64
	for i := range w {
		w[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	e.SetWords(&w)
}

// Binding is a range of a buffer as a program sees it.
type Binding struct {
	Buffer uint64 // handle
	Off    uint64 // bytes
	Len    uint64 // bytes; 0: to the end
}
