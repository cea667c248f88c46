package lane

import (
	"capgpu/program"
	"capgpu/program/spirv"
	"capgpu/program/verify"
)

// lowerer turns a module into a fn: functions inlined, composites split into
// scalars, local variables that are never indexed dynamically made values. It does
// the last on the fly, block by block (Braun et al., Simple and Efficient
// Construction of Static Single Assignment Form, 2013).
type lowerer struct {
	p     *verify.Program
	m     *spirv.Module
	o     Options
	f     *fn
	types map[spirv.ID]*tinfo
	depth int

	globals map[spirv.ID][]val     // values of constants
	vars    map[spirv.ID]*variable // outside functions
	dynamic map[spirv.ID]bool      // variables and parameters that are indexed dynamically
	shapes  map[*spirv.Function]*shape

	leafWide   []bool // by number of a leaf of a promoted variable
	defs       map[uint64]val
	incomplete map[int32][]openPhi
	order      []int32 // blocks as they were lowered
	cur        int32
	src        *spirv.Inst
	fr         *frame
}

type openPhi struct {
	leaf int32
	phi  val
}

// shape is the information about a function that all its inlined instances share.
type shape struct {
	order []int // reachable blocks in structured order
	preds []int // number of reachable predecessors
	index map[spirv.ID]int
	succs [][]int // distinct, constant conditions decided
}

// frame is one inlined instance of a function.
type frame struct {
	up     *frame
	depth  int
	fn     *spirv.Function
	vals   map[spirv.ID][]val
	ptrs   map[spirv.ID]pointer
	phis   map[spirv.ID]int32 // first leaf
	blk    []int32
	left   []int // predecessors still to come
	ret    int32 // block after the call; -1 in the entry point
	result int32 // first leaf of the result
}

// pointer is the target of an OpVariable, an access chain or a parameter.
type pointer struct {
	v     *variable
	base  val // chosen when the program runs: a place that off and terms count from
	off   uint64
	bytes uint64 // private memory: off in bytes
	terms []index
	typ   spirv.ID // pointee
	in    spread   // of the matrix that it is, or is a part of
}

type index struct {
	v             val
	stride, bound uint32
	bytes         uint32 // private memory: the stride in bytes
}

func newLowerer(p *verify.Program, o Options) *lowerer {
	f := &fn{
		ins: make([]ins, 1, 512), block: o.Block, lanes: int(o.Block.X * o.Block.Y * o.Block.Z), subs: o.SubgroupSize,
		consts: make(map[constKey]val), limit: maxInstrs, stop: o.Stop,
	}
	return &lowerer{
		p: p, m: p.Module, o: o, f: f,
		types:   make(map[spirv.ID]*tinfo),
		globals: make(map[spirv.ID][]val),
		vars:    make(map[spirv.ID]*variable),
		dynamic: make(map[spirv.ID]bool),
		shapes:  make(map[*spirv.Function]*shape),
		defs:    make(map[uint64]val), incomplete: make(map[int32][]openPhi),
	}
}

// run lowers the entry point and all it calls.
func (l *lowerer) run() *fn {
	l.findDynamic()
	l.cur = l.newBlock()
	l.seal(l.cur)
	l.order = append(l.order, l.cur)
	l.globalVars()
	l.function(l.p.Entry, nil, -1)
	return l.f
}

func (l *lowerer) newBlock() int32 {
	l.f.burn(l.src, 4)
	l.f.blocks = append(l.f.blocks, block{loop: -1})
	if len(l.f.blocks) > maxInstrs {
		fail(l.src, "SPV-2900", "with its functions inlined the program has more than %d blocks", maxInstrs)
	}
	return int32(len(l.f.blocks) - 1)
}

// globalVars makes the variables outside functions. Private ones get their
// initial values here, in the first block.
func (l *lowerer) globalVars() {
	for i := range l.m.Globals {
		d := &l.m.Globals[i]
		if d.Op != spirv.OpVariable {
			continue
		}

		l.src = d
		typ, storage := l.pointee(d.Type)
		v := &variable{id: d.Result, typ: typ, binding: -1}
		switch storage {
		case spirv.StorageClassStorageBuffer, spirv.StorageClassUniform:
			v.class = classBuffer
			if v.binding = l.p.Binding(d.Result); v.binding < 0 {
				continue // not the entry point's
			}
			if t := l.m.Def(typ); t != nil && t.Op == spirv.OpTypeArray {
				n, _ := l.constantBits(t.Arg(1))
				v.buffers = int(min(n, program.MaxBindings))
			}

		case spirv.StorageClassPushConstant:
			v.class = classPush
		case spirv.StorageClassInput:
			v.class = classInput
			if b, ok := l.m.Decoration(d.Result, spirv.DecorationBuiltIn); ok {
				v.builtin = spirv.BuiltIn(literal(b))
			}

		case spirv.StorageClassWorkgroup:
			if !l.isShared(d.Result) {
				continue
			}
			v.class = classShared
			t := l.typ(typ)
			l.f.shared = (l.f.shared + 7) / 8 * 8
			v.base, v.bytes = l.f.shared, t.size
			if uint64(l.f.shared)+uint64(t.size) > 1<<20 {
				fail(d, "E-GPU-4032", "too much shared memory")
			}
			l.f.shared += t.size
			if len(d.Args) > 1 { // only zeros were admitted
				l.f.zeros = append(l.f.zeros, [2]uint32{v.base, v.base + v.bytes})
			}
			if most := program.MaxSharedBytes + 8*len(l.p.Shared); l.f.shared > uint32(most) {
				fail(d, "P-GPU-5003", "with a workgroup of %d×%d×%d lanes, shared memory is more than %d bytes", l.o.Block.X, l.o.Block.Y, l.o.Block.Z, program.MaxSharedBytes)
			}

		case spirv.StorageClassPrivate:
			l.local(v, d)
		default:
			continue
		}

		l.f.vars = append(l.f.vars, v)
		l.vars[d.Result] = v
	}
}

func (l *lowerer) isShared(id spirv.ID) bool {
	for _, s := range l.p.Shared {
		if s == id {
			return true
		}
	}
	return false
}

// local places a Function or Private variable, and writes its initial value.
func (l *lowerer) local(v *variable, d *spirv.Inst) {
	v.class = classPrivate
	t := l.typ(v.typ)
	if t.leaves > maxLeaves {
		fail(d, "E-GPU-4012", "a variable of %d scalars", t.leaves)
	}

	l.f.burn(d, t.leaves)
	var init []val
	if len(d.Args) > 1 {
		init = l.value(d.Arg(1))
	}

	if !l.dynamic[d.Result] {
		v.promoted = true
		v.first = int32(len(l.leafWide))
		k := 0
		l.leafVisit(classPrivate, t, 0, func(t *tinfo, _ uint64) {
			l.leafWide = append(l.leafWide, t.wide)
			x := l.f.constant(0, t.wide)
			if k < len(init) {
				x = init[k]
			}
			l.write(v.first+int32(k), l.cur, x)
			k++
		})
		return
	}

	v.wide = t.wide
	n := &l.f.privs[0]
	if v.wide {
		n = &l.f.privs[1]
	}

	v.base, v.bytes = *n, uint32(t.leaves)
	*n += v.bytes
	l.f.vars = append(l.f.vars, v)
	l.effect(ins{op: iClearVar, aux: int32(len(l.f.vars) - 1), void: true})
	if init != nil {
		l.store(pointer{v: v, typ: v.typ}, init)
	}
}

// findDynamic finds the Function and Private variables, and the parameters that
// point to such, that some access chain indexes by a value that is not constant.
func (l *lowerer) findDynamic() {
	root := make(map[spirv.ID]spirv.ID)
	find := func(id spirv.ID) spirv.ID {
		top := id
		for up, ok := root[top]; ok; up, ok = root[top] {
			top = up
		}
		for id != top {
			root[id], id = top, root[id]
		}
		return top
	}

	type pass struct{ param, arg spirv.ID }
	var calls []pass
	for _, f := range l.m.Functions {
		for _, b := range f.Blocks {
			for i := range b.Insts {
				in := &b.Insts[i]
				switch in.Op {
				case spirv.OpAccessChain, spirv.OpInBoundsAccessChain:
					root[in.Result] = in.Arg(0)
					for k := 1; k < len(in.Args); k++ {
						if d := l.m.Def(in.Arg(k)); d == nil || !isConstant(d.Op) {
							l.dynamic[find(in.Arg(0))] = true
						} else if l.outside(in, k) {
							l.dynamic[find(in.Arg(0))] = true
						}
					}

				case spirv.OpCopyObject:
					root[in.Result] = in.Arg(0)
				case spirv.OpFunctionCall:
					if g := l.callee(in.Arg(0)); g != nil {
						for k := range g.Params {
							calls = append(calls, pass{g.Params[k].Result, in.Arg(k + 1)})
						}
					}
				}
			}
		}
	}

	for changed := true; changed; {
		changed = false
		for _, c := range calls {
			if l.dynamic[c.param] && !l.dynamic[find(c.arg)] {
				l.dynamic[find(c.arg)] = true
				changed = true
			}
		}
	}
}

// outside reports that a constant index is certainly past an array's end somewhere:
// the variable then stays in memory, where the access traps. Without the type of
// each step it is conservative for large indices.
func (l *lowerer) outside(in *spirv.Inst, k int) bool {
	n, ok := l.constantBits(in.Arg(k))
	if !ok {
		return true
	}

	d := l.m.Def(in.Arg(0))
	if d == nil {
		return true
	}

	if t := l.m.Def(d.Type); t == nil || t.Op != spirv.OpTypePointer {
		return true
	} else if c := spirv.StorageClass(t.Args[0]); c != spirv.StorageClassFunction && c != spirv.StorageClassPrivate {
		return false
	}

	typ, _ := l.pointee(d.Type)
	t := l.typ(typ)
	for j := 1; j < k; j++ {
		c, ok := l.constantBits(in.Arg(j))
		if !ok || c >= uint64(t.n) && t.kind != typeRuntime {
			return true
		}
		if t.kind == typeStruct {
			t = l.typ(t.members[c])
		} else if t.elem != nil {
			t = t.elem
		}
	}

	return n >= uint64(t.n)
}

func isConstant(op spirv.Opcode) bool {
	switch op {
	case spirv.OpConstant, spirv.OpSpecConstant, spirv.OpConstantNull, spirv.OpSpecConstantOp, spirv.OpUndef:
		return true
	}
	return false
}

func (l *lowerer) callee(id spirv.ID) *spirv.Function {
	for _, f := range l.m.Functions {
		if f.ID() == id {
			return f
		}
	}
	return nil
}

// effect appends an instruction to the current block as it is.
func (l *lowerer) effect(i ins) val {
	i.blk, i.src = l.cur, l.src
	v := l.f.add(i)
	l.f.blocks[l.cur].ins = append(l.f.blocks[l.cur].ins, v)
	return v
}

// emit is a pure instruction: folded if all arguments are constants.
func (l *lowerer) emit(o op, wide bool, imm uint64, args ...val) val {
	i := ins{op: o, wide: wide, imm: imm, args: l.f.take(args), src: l.src}
	if v, ok := l.f.fold(&i); ok {
		return v
	}
	return l.effect(i)
}

func (l *lowerer) spv(o spirv.Opcode, wide bool, args ...val) val {
	return l.emit(op(o), wide, 0, args...)
}

// value is the leaves of a value.
func (l *lowerer) value(id spirv.ID) []val {
	if l.fr != nil {
		if v, ok := l.fr.vals[id]; ok {
			return v
		}
	}
	if v, ok := l.constant(id); ok {
		return v
	}
	if p, ok := l.known(id); ok && l.typ(l.typeOf(id)).leaves == 1 {
		return []val{l.placeOf(p)}
	}
	fail(l.src, "SPV-2901", "%s has no value here", l.m.Name(id))
	return nil
}

func (l *lowerer) scalar(id spirv.ID) val {
	v := l.value(id)
	if len(v) != 1 {
		fail(l.src, "SPV-2901", "%s is not a scalar", l.m.Name(id))
	}
	return v[0]
}

func (l *lowerer) pointer(id spirv.ID) pointer {
	if p, ok := l.known(id); ok {
		return p
	}
	if t := l.typ(l.typeOf(id)); t.kind == typePointer && t.leaves == 1 { // a constant
		return l.chosen(t, l.scalar(id))
	}
	fail(l.src, "SPV-2901", "%s is not a pointer that the lane engine can follow", l.m.Name(id))
	return pointer{}
}
