package instrument

import (
	"capgpu/outcome"
	"capgpu/program"
	"capgpu/program/spirv"
)

// writeFunction writes a function of the module. The entry point lacks its head: see
// writeEntry.
func (r *rewriter) writeFunction(f *spirv.Function) error {
	if r.inEntry = f == r.p.Entry; !r.inEntry {
		r.body.copy(&f.Def)
	}
	for k := range f.Params {
		r.body.copy(&f.Params[k])
	}

	r.result = f.Def.Type
	r.ends = make(map[spirv.ID]spirv.ID)
	r.places = make(map[spirv.ID]place)
	r.begins = make(map[spirv.ID]begin)
	g := newGraph(f)
	r.before, r.heads = r.findCounted(f, g)
	r.findTails(f, g)
	for k, b := range f.Blocks {
		if isLoop(b) && !r.heads[k] || r.before[k] != nil || r.guards(b) {
			r.ends[b.Label] = r.newID()
		}
	}

	for k, b := range f.Blocks {
		if err := r.writeBlock(g, k, b); err != nil {
			return err
		}
	}

	r.do(spirv.OpFunctionEnd)
	return nil
}

// end is the label of the last block that a block of the module has become.
func (r *rewriter) end(label spirv.ID) spirv.ID {
	if id, ok := r.ends[label]; ok {
		return id
	}
	return label
}

func (r *rewriter) writeBlock(g *graph, n int, b *spirv.Block) error {
	r.checked = make(map[spirv.ID]checked)
	if g.dead[n] {
		if g.Reachable(n) { // it is the merge block of a construct
			r.label(b.Label)
			r.do(spirv.OpUnreachable)
		}
		return nil
	}

	r.label(b.Label)
	phis := 0
	for phis < len(b.Insts) && b.Insts[phis].Op == spirv.OpPhi {
		r.phi(g, &b.Insts[phis])
		phis++
	}

	rest := b.Insts[phis:]
	if n == 0 {
		into := &r.body
		if r.inEntry {
			into = &r.entryVars
		}
		rest = r.variables(into, rest)
	}

	if isLoop(b) && g.behind[n] && !r.heads[n] {
		return refuse(b.Merge, "a loop of unknown length inside the continue construct of another")
	}
	if _, split := r.ends[b.Label]; isLoop(b) && split {
		r.loopHead(b, r.heads[n])
	}

	for k := range rest {
		r.inst(&rest[k])
	}

	switch {
	case b.Term.Op == spirv.OpUnreachable:
		if g.behind[n] {
			return refuse(&b.Term, "inside a continue construct")
		}
		r.note(r.never(), site{kind: outcome.Unreachable, binding: outcome.NoBinding, source: r.m.Source(b.Term.Line)}, nil)
		r.leave()
		return nil

	case b.Term.Op == spirv.OpReturn && r.isTail(n) && n > 0:
		r.do(spirv.OpReturn)
		return nil

	case b.Term.Op == spirv.OpReturn:
		r.leave()
		return nil

	case r.before[n] != nil:
		r.charge(r.before[n])
	}

	// The block's last part has the label that phis know it by.
	end, split := r.ends[b.Label]
	if split {
		r.do(spirv.OpBranch, end)
		r.label(end)
	}
	if r.leadsToTail(g, n, b) {
		r.op(spirv.OpFunctionCall, r.void(), r.helper(&r.helpers.record))
	}
	if b.Merge != nil && !(isLoop(b) && split) {
		r.body.copy(b.Merge)
	}
	r.body.copy(&b.Term)
	return nil
}

// refuse is the error for what a program of the profile may do and this package
// cannot make safe.
func refuse(in *spirv.Inst, format string, args ...any) error {
	return program.Refuse(CodeFlow, in.Op.String(), in.Off, format, args...)
}

// refuse keeps the first refusal.
func (r *rewriter) refuse(in *spirv.Inst, why string) {
	if r.refused == nil {
		r.refused = refuse(in, "%s", why)
	}
}

// phi copies an OpPhi; the predecessors may have been split.
func (r *rewriter) phi(g *graph, in *spirv.Inst) {
	var args []uint32
	for k := 1; k < len(in.Args); k += 2 {
		if !g.dead[g.Index[in.Arg(k)]] {
			args = append(args, in.Args[k-1:k+1]...)
		}
	}
	for k := 1; k < len(args); k += 2 {
		if b, ok := r.begins[in.Result]; ok && args[k] == uint32(b.from) {
			args[k-1] = uint32(b.value)
		}
		args[k] = uint32(r.end(spirv.ID(args[k])))
	}
	r.body.put(in.Op, words(in.Type, in.Result, args)...)
}

// variables moves the variables of a function, each zero at first, and returns the
// other instructions of its first block.
func (r *rewriter) variables(into *code, insts []spirv.Inst) (rest []spirv.Inst) {
	for k := range insts {
		in := insts[k]
		if in.Op != spirv.OpVariable {
			rest = append(rest, in)
			continue
		}
		if len(in.Args) == 1 {
			in.Args = []uint32{in.Args[0], uint32(r.null(&r.late, r.types[in.Type].elem.id))}
		}
		into.copy(&in)
	}
	return rest
}

// guards reports that a block has accesses that are left out where they would be
// outside their binding: those that write.
func (r *rewriter) guards(b *spirv.Block) bool {
	for k := range b.Insts {
		if n := writes(r.m, &b.Insts[k]); n >= 0 && spaceOf(r.typeOf(b.Insts[k].Arg(n)).class) == inBuffer {
			return true
		}
	}
	return false
}

// writes is the argument of an instruction that is a pointer by which it writes, or
// -1.
func writes(m *spirv.Module, in *spirv.Inst) int {
	switch {
	case in.Op == spirv.OpStore, in.Op == spirv.OpCopyMemory, isAtomic(in.Op) && in.Op != spirv.OpAtomicLoad:
		return 0
	case in.Op == spirv.OpExtInst && m.IsGLSL(in.Arg(0)) && (spirv.GLSL(in.Args[1]) == spirv.GLSLModf || spirv.GLSL(in.Args[1]) == spirv.GLSLFrexp):
		return 3
	}
	return -1
}

// loopHead ends the header of a loop behind its phis, and looks at every round
// whether the lane may go on, unless the rounds are charged before the loop. The
// loop's own instructions follow in a block of their own:
//
//	header: phis, OpLoopMerge ─► turn ──────────────► the rest of the header
//	                               └─► poll (rarely) ─┘
//	                                      └─► leave: return from the function
func (r *rewriter) loopHead(b *spirv.Block, charged bool) {
	turn, poll, leave, rest := r.newID(), r.newID(), r.newID(), r.newID()
	merge, cont := b.Merge.Arg(0), b.Merge.Arg(1)
	if cont == b.Label {
		cont = r.end(b.Label) // the part of a single block with the branch back
	}

	r.body.put(spirv.OpLoopMerge, words(merge, cont, b.Merge.Args[2:])...)
	if charged {
		r.do(spirv.OpBranch, rest)
		r.label(rest)
		return
	}

	u := r.u32()
	r.do(spirv.OpBranch, turn)
	r.label(turn)
	left := r.op(spirv.OpISub, u, r.load(u, r.vars.left), r.word(1))
	r.do(spirv.OpStore, r.vars.left, left)
	r.branch(r.op(spirv.OpIEqual, r.boolean(), left, r.word(0)), poll, rest, rest)

	r.label(poll)
	r.do(spirv.OpBranchConditional, r.op(spirv.OpFunctionCall, r.boolean(), r.helper(&r.helpers.poll), r.word(0)), leave, rest)

	r.label(leave)
	r.leave()
	r.label(rest)
	r.loops = true
}

// leave returns from the function. A lane that returns from the entry point is gone
// for the barriers of others; so it tells what it has to tell here, and not in a
// function around the program's.
func (r *rewriter) leave() {
	if r.inEntry {
		r.op(spirv.OpFunctionCall, r.void(), r.helper(&r.helpers.record))
	}
	if r.types[r.result].op == spirv.OpTypeVoid {
		r.do(spirv.OpReturn)
		return
	}
	r.do(spirv.OpReturnValue, r.null(&r.late, r.result))
}

// inst writes one instruction.
func (r *rewriter) inst(in *spirv.Inst) {
	switch in.Op {
	case spirv.OpNop, spirv.OpLine, spirv.OpNoLine, spirv.OpUndef:
		// An OpUndef has become a constant.

	case spirv.OpAccessChain, spirv.OpInBoundsAccessChain:
		r.follow(in)

	case spirv.OpCopyObject:
		if r.types[in.Type].op == spirv.OpTypePointer {
			r.follow(in)
			return
		}
		r.body.copy(in)

	case spirv.OpLoad:
		if p := r.placeOf(in.Arg(0)); p.root == r.p.Inline && len(p.path) == 0 {
			r.loadInline(in)
			return
		}
		r.accessing(in, 0)

	case spirv.OpStore:
		r.accessing(in, 0)
	case spirv.OpCopyMemory:
		r.copyMemory(in)
	case spirv.OpArrayLength:
		r.arrayLength(in)

	case spirv.OpExtInst:
		switch {
		case !r.m.IsGLSL(in.Arg(0)):
		case spirv.GLSL(in.Args[1]) == spirv.GLSLModf || spirv.GLSL(in.Args[1]) == spirv.GLSLFrexp:
			r.accessing(in, 3)
		default:
			r.body.copy(in)
		}

	case spirv.OpControlBarrier:
		// A trap before a barrier is told before what comes of it behind the barrier.
		r.op(spirv.OpFunctionCall, r.void(), r.helper(&r.helpers.claim))
		r.body.copy(in)

	case spirv.OpSDiv, spirv.OpUDiv, spirv.OpSRem, spirv.OpSMod, spirv.OpUMod:
		r.divide(in)
	case spirv.OpShiftLeftLogical, spirv.OpShiftRightLogical, spirv.OpShiftRightArithmetic:
		r.shift(in)
	case spirv.OpConvertFToS, spirv.OpConvertFToU:
		r.toInt(in)
	case spirv.OpBitFieldInsert, spirv.OpBitFieldSExtract, spirv.OpBitFieldUExtract:
		r.bitField(in)
	case spirv.OpVectorExtractDynamic, spirv.OpVectorInsertDynamic:
		r.component(in)

	default:
		if isAtomic(in.Op) {
			r.accessing(in, 0)
			return
		}
		r.body.copy(in)
		r.exact(in)
	}
}

func isAtomic(o spirv.Opcode) bool {
	return o >= spirv.OpAtomicLoad && o <= spirv.OpAtomicXor || o == spirv.OpAtomicFAddEXT
}

// accessing copies an instruction with its pointer, argument n, checked. One that
// would write outside its binding is left out, and has the result 0.
func (r *rewriter) accessing(in *spirv.Inst, n int) {
	pointer := in.Arg(n)
	p := r.access(in, pointer)
	c := *in
	c.Args = append([]uint32(nil), in.Args...)
	c.Args[n] = uint32(p.chain)
	if p.ok == 0 || writes(r.m, in) < 0 {
		r.body.copy(&c)
		return
	}

	before, inside, after := r.newID(), r.newID(), r.newID()
	r.do(spirv.OpBranch, before)
	r.label(before)
	r.branch(p.ok, inside, after, after)
	r.label(inside)
	if in.Result != 0 {
		c.Result = r.newID()
	}
	r.body.copy(&c)
	r.do(spirv.OpBranch, after)
	r.label(after)
	if in.Result != 0 {
		r.opAs(in.Result, spirv.OpPhi, in.Type, c.Result, inside, r.null(&r.late, in.Type), before)
	}
}

// exact keeps a compiler from fusing a product and a sum, in programs that promise
// results bit for bit.
func (r *rewriter) exact(in *spirv.Inst) {
	if r.p.Info.Tolerance != (program.Tolerance{}) {
		return
	}
	switch in.Op {
	case spirv.OpFNegate, spirv.OpFAdd, spirv.OpFSub, spirv.OpFMul, spirv.OpFDiv, spirv.OpVectorTimesScalar, spirv.OpDot,
		spirv.OpMatrixTimesScalar, spirv.OpVectorTimesMatrix, spirv.OpMatrixTimesVector, spirv.OpMatrixTimesMatrix, spirv.OpOuterProduct:
		if _, ok := r.m.Decoration(in.Result, spirv.DecorationNoContraction); !ok {
			r.decorate(in.Result, spirv.DecorationNoContraction)
		}
	}
}
