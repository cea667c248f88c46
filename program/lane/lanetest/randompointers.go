package lanetest

import "capgpu/program/spirv"

// Pointers that are chosen when the program runs.

// declarePointers declares what they lead to.
func (g *generator) declarePointers() {
	if !g.chosen {
		return
	}
	g.Capability(spirv.CapabilityVariablePointers)
	g.Extension("SPV_KHR_variable_pointers")
	u := g.Uint(32)
	g.mem.buffers[outMore] = g.Buffer(outMore, u, 4)
	g.Decorate(g.Pointer(spirv.StorageClassStorageBuffer, u), spirv.DecorationArrayStride, 4)
	g.Decorate(g.Pointer(spirv.StorageClassWorkgroup, u), spirv.DecorationArrayStride, 4)
	for i := range g.mem.mine {
		g.mem.mine[i] = g.Shared(g.Array(u, g.U32(uint32(g.launch.lanes)), 0))
	}
}

// picks makes a function for each class that changes what it was handed, and returns
// one of two pointers.
func (g *generator) picks() {
	if !g.chosen {
		return
	}
	u := g.Uint(32)
	for _, class := range []spirv.StorageClass{spirv.StorageClassStorageBuffer, spirv.StorageClassWorkgroup} {
		p := g.Pointer(class, u)
		f := g.Func(p, p, p, g.Bool())
		first, second, yes := g.Param(0), g.Param(1), g.Param(2)
		g.Store(first, g.Op(spirv.OpIAdd, u, g.Load(u, second), g.U32(3)))
		g.If(yes, func() bool { g.ReturnValue(second); return false }, nil)
		g.ReturnValue(first)
		g.End()
		g.mem.picks = append(g.mem.picks, f)
	}
}

// target is a pointer to a word of the lane. One that is only to be read may lead to
// any of the words that nobody writes.
func (g *generator) target(class spirv.StorageClass, reads bool) spirv.ID {
	u := g.Uint(32)
	switch n := g.n(8); {
	case g.wild && n == 7 && g.n(4) == 3:
		return g.Null(g.Pointer(class, u))
	case class == spirv.StorageClassWorkgroup:
		at := g.Load(u, g.mem.inputs[spirv.BuiltInLocalInvocationIndex])
		if g.wild && n == 6 && g.n(4) == 3 {
			at = g.op(spirv.OpIAdd, shape{u32, 1}, at, g.expr(shape{u32, 1}, 1, false))
		}
		return g.Access(class, u, g.mem.mine[n%2], at)
	case g.wild && n == 6 && g.n(4) == 3:
		at := g.op(spirv.OpIMul, shape{u32, 1}, g.expr(shape{u32, 1}, 1, false), g.U32(1<<20))
		return g.element(outWords, u, at)
	case reads && n < 2:
		at := g.op(spirv.OpBitwiseAnd, shape{u32, 1}, g.expr(shape{u32, 1}, 1, g.n(2) == 1), g.U32(63))
		return g.Access(class, u, g.mem.buffers[inWords], g.U32(0), at)
	case n == 5: // a step on or back to an element of the lane's
		k := g.n(slots)
		if g.wild && g.n(4) == 3 {
			k -= 1 << g.n(30)
		}
		step := g.I32(int32(k - 3))
		if g.n(2) == 1 {
			step = g.op(spirv.OpIAdd, shape{i32, 1}, step, g.op(spirv.OpBitwiseAnd, shape{i32, 1}, g.expr(shape{i32, 1}, 1, false), g.I32(0)))
		}
		return g.Op(spirv.OpPtrAccessChain, g.Pointer(class, u), g.element(outWords, u, g.U32(3)), step)
	case n%2 == 0:
		return g.element(outWords, u, g.word(slots))
	}
	return g.element(outMore, u, g.word(slots))
}

// pointers chooses a pointer in some way, and uses what it leads to.
func (g *generator) pointers() {
	if !g.chosen {
		return
	}
	class := []spirv.StorageClass{spirv.StorageClassStorageBuffer, spirv.StorageClassWorkgroup}[g.n(2)]
	reads := g.n(3) == 2
	a, b := g.target(class, reads), g.target(class, reads)
	cond := g.expr(shape{boolean, 1}, 2, g.n(3) == 2)
	u, t := g.Uint(32), g.Pointer(class, g.Uint(32))

	var p spirv.ID
	switch g.n(5) {
	case 0:
		p = g.Op(spirv.OpSelect, t, cond, a, b)

	case 1: // a variable that holds pointers
		v := g.Local(t)
		g.Store(v, a)
		g.If(cond, func() bool { g.Store(v, b); return true }, nil)
		g.fresh()
		p = g.Load(t, v)

	case 2: // an OpPhi
		yes, no, merge := g.ID(), g.ID(), g.ID()
		g.SelectionMerge(merge)
		g.BranchIf(cond, yes, no)
		g.Begin(yes)
		g.Branch(merge)
		g.Begin(no)
		g.Branch(merge)
		g.open(merge)
		p = g.Op(spirv.OpPhi, t, a, yes, b, no)

	case 3: // one that swaps in each round of a loop
		p = g.swapping(t, a, b)

	case 4:
		if reads {
			p = g.Op(spirv.OpSelect, t, cond, a, b)
			break
		}
		f := g.mem.picks[0]
		if class == spirv.StorageClassWorkgroup {
			f = g.mem.picks[1]
		}
		p = g.Call(t, f, a, b, cond)
	}

	word := shape{u32, 1}
	if g.Version >= 0x10400 && g.n(3) == 2 {
		op := []spirv.Opcode{spirv.OpPtrEqual, spirv.OpPtrNotEqual}[g.n(2)]
		g.keep(g.op(op, shape{boolean, 1}, p, b), shape{boolean, 1}, false)
	}
	switch n := g.n(5); {
	case reads || n == 0:
		g.keep(g.Load(u, p), word, false)
	case n == 1:
		g.Store(p, g.expr(word, 2, false))
	case n == 2:
		g.keep(g.op(spirv.OpAtomicIAdd, word, p, g.U32(uint32(spirv.ScopeDevice)), g.U32(0), g.expr(word, 1, false)), word, false)
	case n == 3:
		g.Do(spirv.OpCopyMemory, p, g.Op(spirv.OpSelect, t, cond, b, a))
	default:
		g.Store(p, g.op(spirv.OpIAdd, word, g.Load(u, p), g.U32(5)))
	}
}

// swapping is a loop with two pointers that change places; it stores to one of them
// in each round, and is one of them behind it.
func (g *generator) swapping(t, a, b spirv.ID) spirv.ID {
	u := g.Uint(32)
	before, head, body, cont, merge := g.ID(), g.ID(), g.ID(), g.ID(), g.ID()
	i, next, p, q := g.ID(), g.ID(), g.ID(), g.ID()
	rounds := g.op(spirv.OpBitwiseAnd, shape{u32, 1}, g.expr(shape{u32, 1}, 1, g.n(2) == 1), g.U32(3))
	g.Branch(before)
	g.Begin(before)
	g.Branch(head)
	g.Begin(head)
	g.Do(spirv.OpPhi, u, i, g.U32(0), before, next, cont)
	g.Do(spirv.OpPhi, t, p, a, before, q, cont)
	g.Do(spirv.OpPhi, t, q, b, before, p, cont)
	more := g.op(spirv.OpULessThan, shape{boolean, 1}, i, rounds)
	g.LoopMerge(merge, cont)
	g.BranchIf(more, body, merge)
	g.Begin(body)
	g.add(g.Load(u, p), shape{u32, 1})
	g.Branch(cont)
	g.Begin(cont)
	g.Do(spirv.OpIAdd, u, next, i, g.U32(1))
	g.Branch(head)
	g.open(merge)
	return p
}
