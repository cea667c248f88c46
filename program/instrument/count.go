package instrument

import (
	"capgpu/program/spirv"
)

// counted is a loop that ends after a number of rounds that is known when it
// begins, as for (i = start; i < bound; i += step) with nothing else that changes i
// or leaves the loop. Its rounds are charged before it, and it needs no look at each
// round: a compiler may unroll it.
type counted struct {
	test        spirv.Opcode // OpULessThan or OpSLessThan
	variable    spirv.ID     // i, or
	phi, start  spirv.ID     // of an OpPhi: it, and the value that it begins with
	from        spirv.ID     // the block before
	behind      bool         // it is in the continue construct of another loop
	bound, step spirv.ID
	inside      func(block int) bool
	variables   map[spirv.ID]*localUse
	defined     map[spirv.ID]int // block of each value of the function
}

// begin is another value that an OpPhi has from a block.
type begin struct{ from, value spirv.ID }

// localUse is what a function does with one of its variables.
type localUse struct {
	stores  []int // blocks
	escapes bool  // other than by OpLoad and OpStore
}

// findCounted finds the counted loops of a function: by the block before each.
func (r *rewriter) findCounted(f *spirv.Function, g *graph) (before map[int]*counted, heads map[int]bool) {
	before, heads = make(map[int]*counted), make(map[int]bool)
	if len(g.loops) == 0 {
		return before, heads
	}

	variables, defined := localUses(f)
	for k := range g.loops {
		l := &g.loops[k]
		c := &counted{variables: variables, defined: defined, behind: g.behind[l.head]}
		c.inside = func(b int) bool { return g.within(b, k) }
		if at, ok := r.isCounted(f, g, c, l); ok && before[at] == nil {
			before[at], heads[l.head] = c, true
		}
	}
	return before, heads
}

func localUses(f *spirv.Function) (map[spirv.ID]*localUse, map[spirv.ID]int) {
	uses, defined := make(map[spirv.ID]*localUse), make(map[spirv.ID]int)
	for k, b := range f.Blocks {
		for i := range b.Insts {
			in := &b.Insts[i]
			if in.Result != 0 {
				defined[in.Result] = k
			}

			switch in.Op {
			case spirv.OpVariable:
				uses[in.Result] = &localUse{}
			case spirv.OpLoad:
			case spirv.OpStore:
				if u := uses[in.Arg(0)]; u != nil {
					u.stores = append(u.stores, k)
				}
			case spirv.OpAccessChain, spirv.OpInBoundsAccessChain, spirv.OpCopyObject, spirv.OpCopyMemory, spirv.OpFunctionCall, spirv.OpExtInst:
				for n := range in.Args {
					if u := uses[in.Arg(n)]; u != nil {
						u.escapes = true // a literal that looks like one does no harm
					}
				}
			}
		}
	}
	return uses, defined
}

// isCounted fills in c, and returns the block before the loop.
func (r *rewriter) isCounted(f *spirv.Function, g *graph, c *counted, l *loop) (before int, ok bool) {
	preds := g.preds[l.head]
	if len(preds) != 2 || preds[0] != l.cont && preds[1] != l.cont || l.head == l.cont {
		return 0, false // the continue construct is one block
	}
	if before = preds[0]; before == l.cont {
		before = preds[1]
	}
	if b := f.Blocks[before]; b.Term.Op != spirv.OpBranch || b.Merge != nil || c.inside(before) {
		return 0, false
	}

	c.from = f.Blocks[before].Label

	// The test is in the head, or in a block that only the head leads to.
	test := l.head
	if b := f.Blocks[test]; b.Term.Op == spirv.OpBranch {
		if test = g.Index[b.Targets[0]]; len(g.preds[test]) != 1 || test == l.cont || f.Blocks[test].Merge != nil {
			return 0, false
		}
	}

	t := f.Blocks[test]
	if t.Term.Op != spirv.OpBranchConditional || t.Targets[1] != f.Blocks[l.merge].Label || t.Targets[0] == t.Targets[1] {
		return 0, false
	}
	if ways := g.preds[l.merge]; len(ways) != 1 || ways[0] != test || l.returns {
		return 0, false // other ways out
	}
	return before, r.induction(f, c, l.head, test, l.cont, before, t.Term.Arg(0))
}

// induction finds i, its step, and the bound.
func (r *rewriter) induction(f *spirv.Function, c *counted, head, test, cont, before int, cond spirv.ID) bool {
	d := r.m.Def(cond)
	if d == nil || d.Op != spirv.OpULessThan && d.Op != spirv.OpSLessThan {
		return false
	}

	i, bound := r.m.Def(d.Arg(0)), d.Arg(1)
	t := r.typeOf(d.Arg(0))
	if i == nil || t.op != spirv.OpTypeInt || t.width != 32 || r.typeOf(bound).width != 32 {
		return false
	}

	c.test, c.bound = d.Op, bound
	at, here := c.defined[i.Result]
	if !here {
		return false
	}

	next := spirv.ID(0)
	isOld := func(id spirv.ID) bool { return id == i.Result }
	switch {
	case i.Op == spirv.OpPhi && at == head:
		c.phi = i.Result
		for k := 0; k+1 < len(i.Args); k += 2 {
			if i.Arg(k+1) == f.Blocks[before].Label {
				c.start = i.Arg(k)
			} else {
				next = i.Arg(k)
			}
		}

	case i.Op == spirv.OpLoad && (at == head || at == test):
		v := i.Arg(0)
		u := c.variables[v]
		if u == nil || !r.stored(c, u, 1) {
			return false
		}

		c.variable = v
		for k := range f.Blocks[cont].Insts {
			if in := &f.Blocks[cont].Insts[k]; in.Op == spirv.OpStore && in.Arg(0) == v {
				next = in.Arg(1)
			}
		}
		isOld = func(id spirv.ID) bool {
			old := r.m.Def(id)
			return old != nil && old.Op == spirv.OpLoad && old.Arg(0) == v && c.defined[id] == cont
		}
	}

	add := r.m.Def(next)
	if next == 0 || add == nil || add.Op != spirv.OpIAdd {
		return false
	}
	switch {
	case isOld(add.Arg(0)):
		c.step = add.Arg(1)
	case isOld(add.Arg(1)):
		c.step = add.Arg(0)
	default:
		return false
	}
	return r.fixed(c, c.bound, 0) && r.fixed(c, c.step, 0)
}

// stored reports that the loop has exactly n stores to a variable, and nothing else
// that may change it.
func (r *rewriter) stored(c *counted, u *localUse, n int) bool {
	if u.escapes || len(u.stores) > maxStores {
		return false
	}
	for _, b := range u.stores {
		if c.inside(b) {
			n--
		}
	}
	return n == 0
}

// maxStores bounds the search. Compilers make a variable for each loop.
const maxStores = 64

// fixed reports that a value is the same in each round, and that again can compute
// it before the loop.
func (r *rewriter) fixed(c *counted, id spirv.ID, depth int) bool {
	d := r.m.Def(id)
	if d == nil || depth > 8 {
		return false
	}
	if at, here := c.defined[id]; !here || !c.inside(at) {
		return true
	}

	switch d.Op {
	case spirv.OpLoad:
		if u := c.variables[d.Arg(0)]; u != nil {
			return r.stored(c, u, 0)
		}
		p := r.m.Def(d.Arg(0))
		if p == nil || p.Op != spirv.OpAccessChain || p.Arg(0) != r.p.Inline {
			return false
		}
		t := r.typeOf(p.Arg(0)).elem
		for _, w := range p.Args[1:] {
			n, ok := r.value(spirv.ID(w))
			switch {
			case !ok:
				return false
			case t.op == spirv.OpTypeStruct:
				t = t.members[n]
			case n >= uint64(t.n):
				return false
			default:
				t = t.elem
			}
		}
		return true

	case spirv.OpIAdd, spirv.OpISub, spirv.OpIMul:
		return r.fixed(c, d.Arg(0), depth+1) && r.fixed(c, d.Arg(1), depth+1)
	case spirv.OpBitcast:
		return r.typeOf(d.Arg(0)).op == spirv.OpTypeInt && r.fixed(c, d.Arg(0), depth+1)
	case spirv.OpArrayLength:
		_, ok := r.bindings[d.Arg(0)]
		return ok
	}
	return false
}

// again computes a fixed value before the loop.
func (r *rewriter) again(c *counted, id spirv.ID) spirv.ID {
	if at, here := c.defined[id]; !here || !c.inside(at) {
		return id
	}

	d := *r.m.Def(id)
	d.Result = r.newID()
	switch d.Op {
	case spirv.OpLoad:
		p := d.Arg(0)
		if c.variables[p] == nil {
			chain := *r.m.Def(p)
			chain.Result = r.newID()
			r.body.copy(&chain)
			p = chain.Result
		}
		r.opAs(d.Result, spirv.OpLoad, d.Type, p)
	case spirv.OpArrayLength:
		r.arrayLength(&d)
	case spirv.OpBitcast:
		r.opAs(d.Result, d.Op, d.Type, r.again(c, d.Arg(0)))
	default:
		r.opAs(d.Result, d.Op, d.Type, r.again(c, d.Arg(0)), r.again(c, d.Arg(1)))
	}
	return d.Result
}

// charge charges the rounds of a counted loop before it begins: those until the
// next poll suffice, or it is time for one. If i may wrap around, the loop is charged
// as one that does not end.
func (r *rewriter) charge(c *counted) {
	u, b := r.u32(), r.boolean()
	start := c.start
	if c.variable != 0 {
		start = r.load(r.typeOf(c.variable).elem.id, c.variable)
	}

	bound, step := r.again(c, c.bound), r.again(c, c.step)
	less := r.op(c.test, b, start, bound)
	rounds := r.op(spirv.OpISub, u, bound, start)
	if n, ok := r.value(c.step); !ok || uint32(n) != 1 {
		one := r.word(1)
		before := r.op(spirv.OpISub, u, step, one)
		wraps := r.op(c.test, b, r.op(spirv.OpIAdd, u, bound, before), bound)
		by := r.op(spirv.OpSelect, u, wraps, one, r.op(spirv.OpIAdd, u, before, one))
		rounds = r.op(spirv.OpIAdd, u, r.op(spirv.OpUDiv, u, r.op(spirv.OpISub, u, rounds, one), by), one)
		rounds = r.op(spirv.OpSelect, u, wraps, r.word(1<<32-1), rounds)
	}
	rounds = r.op(spirv.OpSelect, u, less, rounds, r.word(0))

	left := r.load(u, r.vars.left)
	few := r.op(spirv.OpULessThan, b, rounds, left)
	r.loops = true
	if c.behind {
		r.chargeBehind(c, few, left, rounds, start, bound)
		return
	}

	enough, poll, leave, rest := r.newID(), r.newID(), r.newID(), r.newID()
	r.branch(few, enough, poll, rest)

	r.label(enough)
	r.do(spirv.OpStore, r.vars.left, r.op(spirv.OpISub, u, left, rounds))
	r.do(spirv.OpBranch, rest)

	r.label(poll)
	r.do(spirv.OpBranchConditional, r.op(spirv.OpFunctionCall, b, r.helper(&r.helpers.poll), rounds), leave, rest)

	r.label(leave)
	r.leave()
	r.label(rest)
}

// chargeBehind is the end of charge in a continue construct, from where no lane can
// return: the loop begins at its bound instead, and so has no rounds.
func (r *rewriter) chargeBehind(c *counted, few, left, rounds, start, bound spirv.ID) {
	u, b := r.u32(), r.boolean()
	enough, poll, rest := r.newID(), r.newID(), r.newID()
	r.branch(few, enough, poll, rest)

	r.label(enough)
	r.do(spirv.OpStore, r.vars.left, r.op(spirv.OpISub, u, left, rounds))
	r.do(spirv.OpBranch, rest)

	r.label(poll)
	leave := r.op(spirv.OpFunctionCall, b, r.helper(&r.helpers.poll), rounds)
	r.do(spirv.OpBranch, rest)

	r.label(rest)
	none := r.op(spirv.OpPhi, b, r.never(), enough, leave, poll)
	t := r.typeOf(start)
	if c.variable != 0 {
		t = r.typeOf(c.variable).elem
	}
	if r.typeOf(c.bound) != t {
		bound = r.op(spirv.OpBitcast, t.id, bound)
	}

	value := r.op(spirv.OpSelect, t.id, none, bound, start)
	if c.variable != 0 {
		r.do(spirv.OpStore, c.variable, value)
	} else {
		r.begins[c.phi] = begin{c.from, value}
	}
}
