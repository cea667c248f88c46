package lanetest

import "capgpu/program/spirv"

// Control flow.

// join is a block with several predecessors, and a phi of their values.
type join struct {
	label   spirv.ID
	t       shape // n 0: no phi
	from    []any // value, block, …
	reached int
}

func (g *generator) join() *join {
	j := &join{label: g.ID()}
	if g.n(2) == 1 {
		j.t = g.shape(true)
	}
	return j
}

// bring records that the current block leads to j, which is still to be written.
func (g *generator) bring(j *join) {
	if j.t.n > 0 {
		j.from = append(j.from, g.expr(j.t, g.n(2), false), g.f.current)
	}
	j.reached++
}

func (g *generator) jump(j *join) {
	g.bring(j)
	g.Branch(j.label)
}

func (g *generator) open(label spirv.ID) {
	g.Begin(label)
	g.f.current = label
}

// arrive begins the block of j; false if nothing leads there, and it has ended.
func (g *generator) arrive(j *join) bool {
	g.open(j.label)
	if j.reached == 0 {
		g.Do(spirv.OpUnreachable)
		return false
	}
	if j.t.n > 0 {
		g.f.scope = append(g.f.scope, val{g.op(spirv.OpPhi, j.t, j.from...), j.t, false})
	}
	return true
}

// nested runs f and ends the scope of its values afterwards.
func (g *generator) nested(apart bool, f func() bool) bool {
	b := g.f
	scope, was := len(b.scope), b.apart
	b.apart = b.apart || apart
	b.nesting++
	open := f()
	b.nesting--
	b.scope, b.apart = b.scope[:scope], was
	return open
}

// begin begins a function.
func (g *generator) begin(h *helper, main bool) {
	b := &body{helper: h, main: main}
	g.f = b
	b.leaves = !main && g.n(2) == 1
	b.apart = b.leaves
	var types []spirv.ID
	for _, p := range h.params {
		types = append(types, g.typ(p))
	}

	for _, p := range h.pointers {
		types = append(types, g.Pointer(spirv.StorageClassFunction, g.typ(p)))
	}

	h.id = g.FuncHead(g.typ(h.result), types...)
	label := g.ID()
	g.open(label)
	for i, p := range h.params {
		b.scope = append(b.scope, val{g.Param(i), p, false})
	}

	for i, p := range h.pointers {
		b.vars = append(b.vars, variableOf{g.Param(len(h.params) + i), &tree{t: p}, spirv.StorageClassFunction})
	}

	b.sum = g.Local(g.Uint(32))
	for range g.n(4) {
		t := g.tree(2, true)
		if g.n(2) == 1 {
			t = &tree{n: 2 + g.n(3), parts: []*tree{{t: g.shape(true)}}}
		}
		b.vars = append(b.vars, variableOf{g.Local(g.typeOf(t)), t, spirv.StorageClassFunction})
	}

	if g.n(3) == 2 {
		t := &tree{t: g.shape(true)}
		b.vars = append(b.vars, variableOf{g.Local(g.typ(t.t), g.odd(t.t)), t, spirv.StorageClassFunction})
	}

	b.vars = append(b.vars, g.mem.private...)
}

// helper makes a function that later ones may call.
func (g *generator) helper() {
	h := &helper{}
	for range g.n(3) {
		h.params = append(h.params, g.shape(true))
	}

	for range g.n(2) {
		h.pointers = append(h.pointers, g.shape(true))
	}

	if g.n(3) > 0 {
		h.result = g.shape(true)
	}

	budget := g.budget
	g.budget = min(g.budget, 60)
	g.begin(h, false)
	if g.statements() {
		g.leave()
	}

	g.End()
	g.budget = budget - (min(budget, 60) - g.budget)
	g.made.functions = append(g.made.functions, h)
}

// leave returns from the function.
func (g *generator) leave() {
	b := g.f
	switch {
	case b.main:
		g.Store(g.element(outWords, g.Uint(32), 0), g.Load(g.Uint(32), b.sum))
		g.Return()
	case b.result.n == 0:
		g.Return()
	default:
		v := g.expr(b.result, 1, false)
		if b.result == (shape{u32, 1}) {
			v = g.op(spirv.OpBitwiseXor, b.result, v, g.Load(g.Uint(32), b.sum))
		}
		g.ReturnValue(v)
	}
}

// statements writes some statements; it returns false if they end the block.
func (g *generator) statements() bool {
	for range g.n(9) {
		if g.budget < 0 {
			break
		}
		if !g.statement() {
			return false
		}
	}
	return true
}

// condition is a branch condition; the lanes here may diverge on it.
func (g *generator) condition() (cond spirv.ID, apart bool) {
	uniform := !g.f.apart && g.n(2) == 1
	return g.expr(shape{boolean, 1}, 2, uniform), !uniform
}

// exit ends the block, if possible: it breaks, continues with the next iteration or
// returns.
func (g *generator) exit() bool {
	b := g.f
	var loop *loopOf
	if len(b.loops) > 0 {
		loop = b.loops[len(b.loops)-1]
	}

	switch g.n(8) {
	case 4:
		if loop == nil || b.apart && !loop.leaves {
			return false
		}
		g.jump(loop.brk)

	case 5:
		if b.brk == nil || loop != nil && b.brk == loop.brk && b.apart && !loop.leaves {
			return false
		}
		g.jump(b.brk)

	case 6:
		if loop == nil || b.apart && !loop.leaves {
			return false
		}
		g.jump(loop.cont)

	case 7:
		if b.apart && !b.main && !b.leaves {
			return false
		}
		g.leave()

	default:
		return false
	}

	return true
}

// selection is an if.
func (g *generator) selection() bool {
	cond, apart := g.condition()
	merge := g.join()
	yes, no := g.ID(), g.ID()
	other := g.n(2) == 1
	target := no
	if !other {
		target = merge.label
		g.bring(merge)
	}

	g.SelectionMerge(merge.label)
	g.BranchIf(cond, yes, target)
	arm := func(label spirv.ID) {
		g.nested(apart, func() bool {
			g.open(label)
			if !g.statements() {
				return false
			}
			if !g.exit() {
				g.jump(merge)
			}
			return true
		})
	}

	arm(yes)
	if other {
		arm(no)
	}

	return g.arrive(merge)
}

// choice is a switch. Cases may fall through into the next.
func (g *generator) choice() bool {
	b := g.f
	uniform := !b.apart && g.n(2) == 1
	t := shape{[]kind{u32, i32}[g.n(2)], 1}
	if g.long && g.n(3) == 2 {
		t.k = []kind{u64, i64}[g.n(2)]
	}

	sel := g.expr(t, 2, uniform)
	if g.n(4) > 0 {
		sel = g.op(spirv.OpBitwiseAnd, t, sel, g.number(t.k, 7))
	}

	merge := g.join()
	n := 1 + g.n(4)
	labels := make([]*join, n)
	args := []any{}
	entry := b.current
	for i := range labels {
		labels[i] = g.join()
		if labels[i].t.n > 0 { // what the switch brings
			labels[i].from = append(labels[i].from, g.expr(labels[i].t, 1, false), entry)
		}

		labels[i].reached++
		for k := range 1 + g.n(2) {
			v := uint32(i + 4*k)
			if i == 2 && k == 1 {
				v = 1<<32 - 3
			}
			args = append(args, v)
			if t.k.long() {
				args = append(args, map[bool]uint32{true: 1<<32 - 1}[v > 100 && t.k == i64])
			}
			args = append(args, labels[i].label)
		}
	}

	other := g.join()
	hasDefault := g.n(3) > 0
	if other.t.n > 0 && hasDefault {
		other.from = append(other.from, g.expr(other.t, 1, false), entry)
	}

	target := other.label
	if hasDefault {
		other.reached++
	} else {
		target = merge.label
		if merge.t.n > 0 {
			merge.from = append(merge.from, g.expr(merge.t, 1, false), entry)
		}
		merge.reached++
	}

	g.SelectionMerge(merge.label)
	g.Do(spirv.OpSwitch, append([]any{sel, target}, args...)...)
	brk := b.brk
	b.brk = merge
	all := labels
	if hasDefault {
		all = append(all, other)
	}

	for i, l := range all {
		g.nested(!uniform, func() bool {
			g.arrive(l)
			if !g.statements() || g.exit() {
				return false
			}
			if i+1 < len(all) && g.n(3) == 2 {
				g.jump(all[i+1])
			} else {
				g.jump(merge)
			}
			return true
		})
	}

	b.brk = brk
	return g.arrive(merge)
}
