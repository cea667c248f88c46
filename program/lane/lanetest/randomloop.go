package lanetest

import "capgpu/program/spirv"

// loopOf is a loop around the current statement.
type loopOf struct {
	brk, cont *join
	leaves    bool // lanes may leave it, or an iteration, while others do not
}

// loop is a for, or a do.
func (g *generator) loop() bool {
	b := g.f
	uniform := !b.apart && g.n(2) == 1
	l := &loopOf{brk: g.join(), cont: g.join(), leaves: !uniform || g.n(2) == 1}
	counter := []kind{u32, i32}[g.n(2)]
	t := shape{counter, 1}
	bound := g.number(counter, 1+g.n(4))
	if g.n(2) == 1 {
		bound = g.op(spirv.OpBitwiseAnd, t, g.expr(t, 1, uniform), g.number(counter, 3))
	} else if !uniform {
		bound = g.op(spirv.OpUMod, shape{u32, 1}, g.expr(shape{u32, 1}, 1, false), g.U32(4))
		if counter == i32 {
			bound = g.op(spirv.OpBitcast, t, bound)
		}
	}

	before := b.current
	carried := g.shape(true)
	start := g.expr(carried, 1, false)
	var turning, starts []spirv.ID // values that change places
	for range g.n(4) {
		turning, starts = append(turning, g.ID()), append(starts, g.expr(carried, 1, false))
	}

	head, test, inner := g.ID(), g.ID(), g.ID()
	atEnd := g.n(3) == 2 // do … while
	direct := !atEnd && g.n(2) == 1
	g.Branch(head)
	g.open(head)
	i, acc, next, carry := g.ID(), g.ID(), g.ID(), g.ID()
	back := l.cont.label // the block with the branch back
	g.Do(spirv.OpPhi, g.typ(t), i, g.number(counter, 0), before, next, back)
	g.Do(spirv.OpPhi, g.typ(carried), acc, start, before, carry, back)
	b.scope = append(b.scope, val{i, t, uniform && !l.leaves}, val{acc, carried, false})
	for k, id := range turning {
		next := acc
		if k+1 < len(turning) {
			next = turning[k+1]
		} else if k > 0 && g.n(2) == 1 {
			next = turning[0]
		}
		g.Do(spirv.OpPhi, g.typ(carried), id, starts[k], before, next, back)
		b.scope = append(b.scope, val{id, carried, false})
	}

	base := len(b.scope)

	outer, brk, apart := b.loops, b.brk, b.apart
	b.loops, b.brk = append(b.loops[:len(b.loops):len(b.loops)], l), l.brk
	b.apart = b.apart || l.leaves
	b.nesting++
	if direct {
		g.lead()
		cond := g.op(spirv.OpULessThan, shape{boolean, 1}, i, bound)
		g.bring(l.brk)
		g.LoopMerge(l.brk.label, l.cont.label)
		g.BranchIf(cond, inner, l.brk.label)
	} else {
		g.LoopMerge(l.brk.label, l.cont.label)
		g.Branch(test)
		if g.open(test); !atEnd {
			g.lead()
			cond := g.op(spirv.OpULessThan, shape{boolean, 1}, i, bound)
			g.bring(l.brk)
			g.BranchIf(cond, inner, l.brk.label)
		} else {
			g.Branch(inner)
		}
	}

	g.open(inner)
	if atEnd {
		g.lead()
	}

	scope := len(b.scope)
	if g.statements() {
		if g.n(6) == 5 && (!b.apart || l.leaves) {
			g.earlyOut(l)
		} else {
			g.jump(l.cont)
		}
	}

	b.scope = b.scope[:scope]
	for k := base; k < scope; k++ {
		// Lanes that leave in different iterations have different ones.
		b.scope[k].uniform = b.scope[k].uniform && !l.leaves
	}

	g.open(l.cont.label)
	if l.cont.t.n > 0 && l.cont.reached > 0 {
		b.scope = append(b.scope, val{g.op(spirv.OpPhi, l.cont.t, l.cont.from...), l.cont.t, false})
	}

	value := g.op(spirv.OpCopyObject, carried, g.expr(carried, 2, false))
	g.Do(spirv.OpIAdd, g.typ(t), next, i, g.number(counter, 1))
	g.Do(spirv.OpCopyObject, g.typ(carried), carry, value)
	if atEnd {
		cond := g.op(spirv.OpULessThan, shape{boolean, 1}, next, bound)
		g.bring(l.brk)
		g.BranchIf(cond, head, l.brk.label)
	} else {
		g.Branch(head)
	}

	b.nesting--
	b.loops, b.brk, b.apart = outer, brk, apart
	b.scope = b.scope[:scope]
	return g.arrive(l.brk)
}

// lead computes values that are also available after the loop, because it comes
// before every way out of the loop.
func (g *generator) lead() {
	for range g.n(4) {
		g.compute()
	}
}

// earlyOut ends a loop's body with a branch that breaks or continues with the next
// iteration, without a merge instruction.
func (g *generator) earlyOut(l *loopOf) {
	cond := g.expr(shape{boolean, 1}, 2, !l.leaves)
	g.bring(l.brk)
	g.bring(l.cont)
	if g.n(2) == 1 {
		g.BranchIf(cond, l.brk.label, l.cont.label)
	} else {
		g.BranchIf(cond, l.cont.label, l.brk.label)
	}
}
