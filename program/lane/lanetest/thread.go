package lanetest

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"capgpu/outcome"
	"capgpu/program/spirv"
)

// thread is one lane.
type thread struct {
	m       *machine
	lane    int
	frames  []*frame
	private map[spirv.ID]*variable // each lane's own variables outside functions
	state   state
	stuck   bool   // it waits for a barrier in vain
	fault   *fault // its fault at the current place
}

type state uint8

const (
	running state = iota
	waitingFor
	trapped
	ended
)

// frame is a call.
type frame struct {
	fn     *function
	at     int // block
	pc     int // instruction of the block; its terminator comes after the last
	values map[spirv.ID]value
	loops  []iteration // that the block is in, the outermost first
	call   *spirv.Inst // in the caller
}

// iteration counts the arrivals at a loop's header since the loop was entered.
type iteration struct {
	header int
	n      int
}

// call begins a function.
func (t *thread) call(fn *function, in *spirv.Inst, args []value) {
	fr := &frame{fn: fn, values: map[spirv.ID]value{}, call: in}
	for i := range fn.Params {
		fr.values[fn.Params[i].Result] = args[i]
	}
	t.frames = append(t.frames, fr)
	t.enter(fr, 0)
}

func (t *thread) top() *frame { return t.frames[len(t.frames)-1] }

// inst is the current instruction.
func (t *thread) inst() *spirv.Inst {
	fr := t.top()
	b := fr.fn.Blocks[fr.at]
	if fr.pc == len(b.Insts) {
		return &b.Term
	}
	return &b.Insts[fr.pc]
}

// next moves on to the next instruction.
func (t *thread) next() {
	t.top().pc++
	t.state = running
}

func (t *thread) trap(f *fault) {
	t.fault, t.state = f, trapped
}

// enter goes to a block, and gives its phis their values.
func (t *thread) enter(fr *frame, to int) {
	from := fr.fn.Blocks[fr.at].Label
	var loops []iteration
	for _, h := range fr.fn.loops[to] {
		n := slices.IndexFunc(fr.loops, func(i iteration) bool { return i.header == h })
		switch {
		case n < 0:
			loops = append(loops, iteration{header: h})
		case h == to:
			loops = append(loops, iteration{h, fr.loops[n].n + 1})
		default:
			loops = append(loops, fr.loops[n])
		}
	}

	fr.loops = loops
	block := fr.fn.Blocks[to]
	news := map[spirv.ID]value{}
	for i := range block.Insts {
		in := &block.Insts[i]
		if in.Op != spirv.OpPhi {
			continue
		}
		for k := 0; k < len(in.Args); k += 2 {
			if in.Arg(k+1) == from {
				news[in.Result] = t.value(in.Arg(k))
			}
		}
	}

	for id, v := range news {
		fr.values[id] = v
	}

	fr.at, fr.pc = to, 0
}

// compare orders two lanes by their place in the program; 0 if they are at the same
// dynamic instance of an instruction.
func (t *thread) compare(o *thread) int {
	for i := range min(len(t.frames), len(o.frames)) {
		a, b := t.frames[i], o.frames[i]
		for k := range min(len(a.loops), len(b.loops)) {
			if a.loops[k].header != b.loops[k].header {
				break
			}
			if c := cmp.Compare(a.loops[k].n, b.loops[k].n); c != 0 {
				return c
			}
		}
		if c := cmp.Compare(a.fn.order[a.at], b.fn.order[b.at]); c != 0 {
			return c
		}
		if c := cmp.Compare(a.pc, b.pc); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(t.frames), len(o.frames))
}

// value is the value of an id.
func (t *thread) value(id spirv.ID) value {
	if v, ok := t.top().values[id]; ok {
		return v
	}
	d := t.m.module.Def(id)
	if d.Op == spirv.OpVariable {
		return value{ptr: &pointer{variable: t.global(id)}}
	}
	return t.m.constant(id)
}

func (t *thread) set(in *spirv.Inst, v value) {
	if in.Result != 0 {
		t.top().values[in.Result] = v
	}
}

// step executes the current instruction, or waits there.
func (t *thread) step() {
	in := t.inst()
	m := t.m
	fr := t.top()
	if fr.pc == len(fr.fn.Blocks[fr.at].Insts) {
		t.terminate(fr, in)
		return
	}

	switch in.Op {
	case spirv.OpNop, spirv.OpPhi, spirv.OpMemoryBarrier, spirv.OpLine, spirv.OpNoLine:
	case spirv.OpVariable:
		v := &variable{typ: m.typ(in.Type).elem, class: spirv.StorageClassFunction, binding: outcome.NoBinding}
		if v.value = zero(v.typ); len(in.Args) > 1 {
			v.value = m.constant(in.Arg(1))
		}
		t.set(in, value{ptr: &pointer{variable: v}})

	case spirv.OpPtrEqual, spirv.OpPtrNotEqual:
		same := m.same(t.value(in.Arg(0)).ptr, t.value(in.Arg(1)).ptr)
		t.set(in, value{bits: truth(same == (in.Op == spirv.OpPtrEqual))})

	case spirv.OpPtrAccessChain:
		t.set(in, t.stepped(in))

	case spirv.OpAccessChain, spirv.OpInBoundsAccessChain:
		p := t.value(in.Arg(0)).ptr
		if p == nil {
			t.set(in, value{})
			break
		}
		path := slices.Clone(p.path)
		first := 1
		if n := len(p.variable.buffers); n > 0 {
			if t.index(in.Arg(1)) >= uint64(n) {
				t.set(in, value{})
				break
			}
			p = &pointer{variable: p.variable.buffers[t.value(in.Arg(1)).bits]}
			first = 2
		}
		for i := first; i < len(in.Args); i++ {
			path = append(path, t.index(in.Arg(i)))
		}
		t.set(in, value{ptr: &pointer{variable: p.variable, path: path, shift: p.shift, shifted: p.shifted}})

	case spirv.OpLoad:
		v, bad := m.load(t.value(in.Arg(0)).ptr)
		if bad != nil {
			t.trap(bad)
			return
		}
		t.set(in, v)

	case spirv.OpStore:
		if bad := m.store(t.value(in.Arg(0)).ptr, t.value(in.Arg(1))); bad != nil {
			t.trap(bad)
			return
		}

	case spirv.OpCopyMemory:
		v, bad := m.load(t.value(in.Arg(1)).ptr)
		if bad == nil {
			bad = m.store(t.value(in.Arg(0)).ptr, v)
		}
		if bad != nil {
			t.trap(bad)
			return
		}

	case spirv.OpArrayLength:
		t.set(in, value{bits: m.arrayLength(t.value(in.Arg(0)).ptr, in.Args[1])})
	case spirv.OpControlBarrier:
		if spirv.Scope(m.constant(in.Arg(0)).bits) == spirv.ScopeWorkgroup {
			t.state = waitingFor
			return
		}

	case spirv.OpFunctionCall:
		var args []value
		for i := 1; i < len(in.Args); i++ {
			args = append(args, t.value(in.Arg(i)))
		}
		t.call(m.functions[in.Arg(0)], in, args)
		return

	case spirv.OpExtInst:
		if bad := t.extended(in); bad != nil {
			t.trap(bad)
			return
		}

	default:
		if isAtomic(in.Op) || in.Op >= spirv.OpGroupNonUniformElect && in.Op <= spirv.OpGroupNonUniformQuadSwap {
			t.state = waitingFor
			return
		}
		if bad := t.component(in); bad != nil {
			t.trap(bad)
			return
		}
		v, bad := m.compute(in, t.value)
		if bad >= 0 {
			t.trap(&fault{kind: outcome.DivideByZero, binding: outcome.NoBinding, index: bad})
			return
		}
		t.set(in, v)
	}

	fr.pc++
}

// terminate ends a block.
func (t *thread) terminate(fr *frame, in *spirv.Inst) {
	b := fr.fn.Blocks[fr.at]
	switch in.Op {
	case spirv.OpBranch:
		t.branch(fr, b.Targets[0])

	case spirv.OpBranchConditional:
		to := b.Targets[1]
		if t.value(in.Arg(0)).bits != 0 {
			to = b.Targets[0]
		}
		t.branch(fr, to)

	case spirv.OpSwitch:
		to := b.Targets[0]
		if n := slices.Index(b.Cases, t.value(in.Arg(0)).bits); n >= 0 {
			to = b.Targets[n+1]
		}
		t.branch(fr, to)

	case spirv.OpReturn, spirv.OpReturnValue:
		var result value
		if in.Op == spirv.OpReturnValue {
			result = t.value(in.Arg(0))
		}
		if fr.call == nil || t.leaves(len(t.frames)-2) {
			t.state = ended // and stays where it is, for compare
			return
		}
		t.frames = t.frames[:len(t.frames)-1]
		t.set(fr.call, result)
		t.top().pc++

	case spirv.OpUnreachable:
		t.trap(&fault{kind: outcome.Unreachable, binding: outcome.NoBinding})
	default:
		panic(fmt.Errorf("the terminator %v", in.Op))
	}
}

func (t *thread) extended(in *spirv.Inst) *fault {
	if !t.m.module.IsGLSL(in.Arg(0)) {
		return nil
	}

	g := spirv.GLSL(in.Args[1])
	var args []value
	for i := 2; i < len(in.Args); i++ {
		args = append(args, t.value(in.Arg(i)))
	}

	if g == spirv.GLSLLdexp {
		args[1] = exponents(t.m.typ(t.m.module.Def(in.Arg(3)).Type), args[1])
	}

	var into *pointer
	if g == spirv.GLSLModf || g == spirv.GLSLFrexp {
		into, args = args[1].ptr, args[:1]
	}

	first, second := glsl(g, t.m.typ(in.Type), args)
	if into != nil {
		if bad := t.m.store(into, second); bad != nil {
			return bad
		}
	}

	t.set(in, first)
	return nil
}

// exponents are integers of any width as 32 bits: beyond them is far beyond any
// exponent.
func exponents(t *typ, v value) value {
	n := v.components()
	for i := range n {
		n[i] = uint64(min(max(signed(n[i], t.scalar().width), math.MinInt32), math.MaxInt32)) & mask(32)
	}
	if t.op != spirv.OpTypeVector {
		return value{bits: n[0]}
	}
	parts := make([]value, len(n))
	for i := range n {
		parts[i].bits = n[i]
	}
	return value{parts: parts}
}

func isAtomic(op spirv.Opcode) bool {
	return op >= spirv.OpAtomicLoad && op <= spirv.OpAtomicXor || op == spirv.OpAtomicFAddEXT
}

func (t *thread) atomic(in *spirv.Inst) {
	first := 3
	if in.Op == spirv.OpAtomicCompareExchange {
		first = 4
	}
	var operands []uint64
	for i := first; i < len(in.Args); i++ {
		operands = append(operands, t.value(in.Arg(i)).bits)
	}
	old, bad := t.m.atomicOp(in, t.value(in.Arg(0)).ptr, operands)
	if bad != nil {
		t.trap(bad)
		return
	}
	t.set(in, value{bits: old})
	t.next()
}

// groupArgs are the operands of a subgroup operation that are values.
func (t *thread) groupArgs(in *spirv.Inst) []value {
	first := 1
	if in.Op == spirv.OpGroupNonUniformBallotBitCount || in.Op >= spirv.OpGroupNonUniformIAdd && in.Op <= spirv.OpGroupNonUniformLogicalXor {
		first = 2
	}
	var args []value
	for i := first; i < len(in.Args); i++ {
		args = append(args, t.value(in.Arg(i)))
	}
	return args
}
