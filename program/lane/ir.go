package lane

import (
	"sync/atomic"

	"capgpu/program"
	"capgpu/program/spirv"
)

// The internal form: one function, everything inlined, in blocks of instructions
// on scalars. Each instruction defines at most one value (SSA). Blocks are in
// structured order: a merge block comes after all blocks of its construct, and
// the blocks of a loop stand together, the one with the back edge last.

// val names an instruction by its index in fn.ins; 0 is no value.
type val int32

// op is a SPIR-V opcode, an instruction of GLSL.std.450 (above glslBase), or one
// of our own.
type op uint32

const glslBase op = 1 << 16

func glslOp(g spirv.GLSL) op { return glslBase + op(g) }

const (
	iNone op = 1<<17 + iota
	iConst
	iPhi        // one argument per predecessor, in the order of block.preds
	iInput      // imm: a register that the engine fills; see input…
	iPush       // imm: byte offset in the inline block; size in bytes is aux
	iArrLen     // aux: variable, imm: offset<<32 | stride
	iLoad       // aux: mem
	iStore      // aux: mem; last argument is the value
	iAtomic     // aux: mem; arguments after the terms are the operands; imm: opcode
	iBarrier    // of the workgroup
	iFence      // imm: see fence…
	iCheckZero  // traps where the argument is zero
	iCheckIndex // traps where the argument is imm or more: the index of a part of a value; aux: bytes of a part
	iClearVar   // aux: variable in private memory
	iSplat      // uniform to varying
	iKeep       // uniform to varying, on active lanes only
	iMulAdd     // a*b + c, both rounded
	iMulLoads   // iMulAdd of two loads: has their arguments, in aux and imm; then c
	iHigh       // imm: opcode; see vec.High
	iUnpack     // imm: GLSL<<8 | component
	iPack4      // imm: GLSL
	iModf       // imm: 0 fraction, 1 whole
	iFrexp      // imm: 0 significand, 1 exponent
	iLow        // low half of 64 bits
	iHighHalf   // high half of 64 bits
	iJoin       // low, high to 64 bits
	iExtend     // imm: bits; sign-extends a narrow integer to 32
	iConvert    // imm: opcode<<16 | from<<8 | to, where from or to is 64
	iSubgroup
	iLoadAt   // aux: spot; the place that a pointer leads to
	iStoreAt  // aux: spot; the place, the value
	iAtomicAt // aux: spot; the place, the operands; imm: opcode
	iCopy
)

// The kinds of fences, for the checker.
const (
	fenceBuffers  = 1 // of the memory of storage buffers
	fenceSubgroup = 2 // a barrier of a subgroup
)

// Inputs: registers that the engine fills. The uniform ones come first.
const (
	inGroupX = iota // WorkgroupId
	inGroupY
	inGroupZ
	inGridX // NumWorkgroups
	inGridY
	inGridZ
	inUniforms
	inLaneX = inUniforms + iota - 7 // LocalInvocationId
	inLaneY
	inLaneZ
	inLane    // LocalInvocationIndex
	inSubLane // SubgroupLocalInvocationId
	inSubID   // SubgroupId
	inEq      // four words each of the subgroup masks; only two can be non-zero
	inEqHi
	inGe
	inGeHi
	inGt
	inGtHi
	inLe
	inLeHi
	inLt
	inLtHi
	inCount
)

// ins is one instruction.
type ins struct {
	op   op
	wide bool // the value is 64 bits
	void bool // there is no value
	vary bool // lanes may differ (found by uniformity)
	mask bool // must be written on active lanes only
	dead bool
	once bool // in fn.launch
	blk  int32
	aux  int32
	imm  uint64
	args []val
	src  *spirv.Inst // where it came from
}

// term is one dynamic index of an access: Σ index × stride is added to the offset.
// bound 0 is an index into a runtime array, which is bounded only by the memory's
// end.
type term struct {
	stride, bound uint32
	bytes         uint32 // private memory: the stride in bytes, as traps tell it
	at            int32  // of ins.args: the index; affine: base and the factors of x, y, z
	affine        bool
}

// mem is the address of an access: constant part and terms.
type mem struct {
	v     *variable
	off   uint64
	size  uint32 // bytes; private memory counts in slots and has 1
	bytes uint64 // private memory: off in bytes, as traps tell it
	terms []term
	args  int32 // where the operands begin in ins.args
	write bool
}

type class uint8

const (
	classBuffer class = iota
	classShared
	classPrivate // per lane
	classPush
	classInput
)

// variable is an OpVariable, or one instance of it in an inlined function.
type variable struct {
	class    class
	id       spirv.ID
	typ      spirv.ID // pointee
	binding  int
	buffers  int    // of an array of buffers: how many
	promoted bool   // its leaves are values, not memory
	first    int32  // promoted: number of its first leaf
	wide     bool   // private: slots of 64 bits
	base     uint32 // shared: byte offset; private: first slot
	bytes    uint32 // shared: size; private: slots
	builtin  spirv.BuiltIn
}

type termKind uint8

const (
	termJump termKind = iota
	termBranch
	termSwitch
	termReturn
	termUnreachable
)

// block ends with a terminator; succs are distinct.
type block struct {
	ins    []val // phis first
	phis   int
	term   termKind
	cond   val
	cases  []uint64 // switch: values; the successor of each is in to
	to     []int32  // switch: index in succs; [0] is the default's
	succs  []int32
	preds  []int32
	src    *spirv.Inst
	loop   int32 // innermost loop, or -1
	idom   int32
	sealed bool
	busy   bool // the module has instructions there, other than phis
}

// loop is a natural loop: blocks first to last, in order.
type loop struct {
	first, last int32
	parent      int32
	divergent   bool // some lanes may leave while others stay
}

// fn is the program in internal form.
type fn struct {
	ins    []ins
	blocks []block
	loops  []loop
	mems   []mem
	spots  []spot
	vars   []*variable
	arena  []val
	lanes  int
	block  program.Dim3
	subs   int // subgroup size

	launch  []val // the same for all workgroups, computed once per Run
	consts  map[constKey]val
	privs   [2]uint32   // slots of private memory in use: of 32 bits, of 64 bits
	privTop [2]uint32   // the most there were
	shared  uint32      // bytes
	zeros   [][2]uint32 // parts of shared memory that begin as zeros
	limit   int
	work    int // done so far
	stop    *atomic.Uint32
	inputs  [inCount]val
	folding *folder
}

type constKey struct {
	bits uint64
	wide bool
}

// failure is thrown by the compiler's parts and caught in Compile.
type failure struct{ err error }

func fail(src *spirv.Inst, code, format string, args ...any) {
	name, off := "", uint32(0)
	if src != nil {
		name, off = src.Op.String(), src.Off
	}
	panic(failure{program.Refuse(code, name, off, format, args...)})
}

// burn counts work, and ends the compilation if it is too much.
func (f *fn) burn(src *spirv.Inst, n int) {
	before := f.work >> 12
	if f.work += n; f.work > maxWork {
		fail(src, "SPV-2900", "with its functions inlined and its composites taken apart, the program takes too much work to compile")
	}
	if f.work>>12 != before && f.stop != nil && f.stop.Load() != 0 {
		panic(failure{ErrStopped})
	}
}

func (f *fn) take(args []val) []val {
	if len(args) == 0 {
		return nil
	}
	if cap(f.arena)-len(f.arena) < len(args) {
		f.arena = make([]val, 0, max(256, len(args)))
	}
	n := len(f.arena)
	f.arena = append(f.arena, args...)
	return f.arena[n:len(f.arena):len(f.arena)]
}

// add appends an instruction to the list of all; it is in no block yet.
func (f *fn) add(i ins) val {
	if len(f.ins) > f.limit {
		fail(i.src, "SPV-2900", "with its functions inlined and its composites taken apart, the program has more than %d instructions", maxInstrs)
	}
	f.burn(i.src, 1)
	f.ins = append(f.ins, i)
	return val(len(f.ins) - 1)
}

func (f *fn) constant(bits uint64, wide bool) val {
	if !wide {
		bits = uint64(uint32(bits))
	}
	k := constKey{bits, wide}
	if v, ok := f.consts[k]; ok {
		return v
	}
	v := f.add(ins{op: iConst, imm: bits, wide: wide})
	f.consts[k] = v
	return v
}

func (f *fn) word(n uint32) val { return f.constant(uint64(n), false) }

// isConst returns the bits of a constant.
func (f *fn) isConst(v val) (uint64, bool) {
	i := &f.ins[v]
	return i.imm, i.op == iConst
}

func (f *fn) isZero(v val) bool { return v == 0 || f.ins[v].op == iConst && f.ins[v].imm == 0 }

// input is the value of a register that the engine fills.
func (f *fn) input(n int) val {
	switch {
	case n == inLaneX && f.block.X == 1, n == inLaneY && f.block.Y == 1, n == inLaneZ && f.block.Z == 1:
		return f.word(0)
	case n == inLane && f.block.Y == 1 && f.block.Z == 1:
		n = inLaneX
	case n == inSubID && f.lanes <= f.subs:
		return f.word(0)
	}
	if f.inputs[n] == 0 {
		f.inputs[n] = f.add(ins{op: iInput, imm: uint64(n), vary: n >= inUniforms})
	}
	return f.inputs[n]
}

// pure reports that an instruction may be removed, moved and shared.
func (f *fn) pure(i *ins) bool {
	switch i.op {
	case iLoadAt, iStoreAt, iAtomicAt:
		return false
	case iPhi, iLoad, iStore, iAtomic, iBarrier, iFence, iCheckZero, iCheckIndex, iClearVar, iKeep, iSubgroup:
		return false
	}
	return true
}

// effects reports that an instruction must stay even if nothing uses its value. A
// load may trap.
func effects(i *ins) bool {
	switch i.op {
	case iStore, iAtomic, iBarrier, iFence, iCheckZero, iCheckIndex, iClearVar, iLoad, iLoadAt, iStoreAt, iAtomicAt:
		return true
	}
	return false
}
