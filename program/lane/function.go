package lane

import (
	"sort"

	"capgpu/program/spirv"
)

// shapeOf finds the reachable blocks of a function in structured order: reverse
// post order of a walk that visits a construct's merge block first and its continue
// target second, which therefore come last.
func (l *lowerer) shapeOf(f *spirv.Function) *shape {
	if s := l.shapes[f]; s != nil {
		return s
	}

	n := len(f.Blocks)
	s := &shape{index: make(map[spirv.ID]int, n), preds: make([]int, n), succs: make([][]int, n)}
	for i, b := range f.Blocks {
		s.index[b.Label] = i
	}

	reach := make([]bool, n)
	work := []int{0}
	reach[0] = true
	for len(work) > 0 {
		b := work[len(work)-1]
		work = work[:len(work)-1]
		s.succs[b] = l.targets(s, f.Blocks[b])
		for _, t := range s.succs[b] {
			s.preds[t]++
			if !reach[t] {
				reach[t] = true
				work = append(work, t)
			}
		}
	}

	type visit struct {
		b    int
		todo []int
	}

	seen := make([]bool, n)
	seen[0] = true
	stack := []visit{{0, l.walkOrder(s, f, 0)}}
	for len(stack) > 0 {
		v := &stack[len(stack)-1]
		if len(v.todo) == 0 {
			s.order = append(s.order, v.b)
			stack = stack[:len(stack)-1]
			continue
		}
		t := v.todo[0]
		v.todo = v.todo[1:]
		if reach[t] && !seen[t] {
			seen[t] = true
			stack = append(stack, visit{t, l.walkOrder(s, f, t)})
		}
	}

	for i, j := 0, len(s.order)-1; i < j; i, j = i+1, j-1 {
		s.order[i], s.order[j] = s.order[j], s.order[i]
	}

	l.shapes[f] = s
	return s
}

func (l *lowerer) walkOrder(s *shape, f *spirv.Function, b int) []int {
	var to []int
	if m := f.Blocks[b].Merge; m != nil {
		to = append(to, s.at(m.Arg(0)))
		if m.Op == spirv.OpLoopMerge {
			to = append(to, s.at(m.Arg(1)))
		}
	}
	for i := len(s.succs[b]) - 1; i >= 0; i-- {
		to = append(to, s.succs[b][i])
	}
	return to
}

// at is the block of a label; the entry, which is always reachable, if there is
// none.
func (s *shape) at(label spirv.ID) int { return s.index[label] }

// targets are the distinct successors, without those that a constant condition
// never takes.
func (l *lowerer) targets(s *shape, b *spirv.Block) []int {
	var labels []spirv.ID
	switch b.Term.Op {
	case spirv.OpBranch, spirv.OpBranchConditional, spirv.OpSwitch:
		labels = b.Targets
		if b.Term.Op != spirv.OpBranch {
			if c, ok := l.constantBits(b.Term.Arg(0)); ok {
				labels = labels[l.taken(b, c):][:1]
			}
		}
	}

	var out []int
next:
	for _, label := range labels {
		t, ok := s.index[label]
		if !ok {
			fail(&b.Term, "SPV-2901", "a branch to a label that is not in the function")
		}
		for _, have := range out {
			if have == t {
				continue next
			}
		}
		out = append(out, t)
	}
	return out
}

// taken is the target for a known condition.
func (l *lowerer) taken(b *spirv.Block, c uint64) int {
	if b.Term.Op == spirv.OpBranchConditional {
		if c != 0 {
			return 0
		}
		return 1
	}
	for i, v := range b.Cases {
		if v == c {
			return i + 1
		}
	}
	return 0
}

// function lowers an instance of a function, from the current block on. Its returns
// go to the block ret.
func (l *lowerer) function(f *spirv.Function, args func(fr *frame), ret int32) {
	s := l.shapeOf(f)
	fr := &frame{
		up: l.fr, fn: f, ret: ret,
		vals: make(map[spirv.ID][]val), ptrs: make(map[spirv.ID]pointer), phis: make(map[spirv.ID]int32),
		blk: make([]int32, len(f.Blocks)), left: append([]int(nil), s.preds...),
	}
	if l.fr != nil {
		if fr.depth = l.fr.depth + 1; fr.depth > 256 {
			fail(l.src, "E-GPU-4010", "calls are nested too deeply")
		}
	}

	l.f.burn(l.src, 16+len(f.Blocks))
	privs := l.f.privs
	if t := l.m.Def(f.Def.Arg(1)); t != nil && t.Op == spirv.OpTypeFunction {
		fr.result = l.newLeaves(t.Arg(0))
	}
	if args != nil {
		args(fr)
	}

	entry := l.cur
	l.fr = fr
	for _, b := range s.order {
		fr.blk[b] = l.newBlock()
		for i := range f.Blocks[b].Insts {
			if in := &f.Blocks[b].Insts[i]; in.Op == spirv.OpPhi {
				fr.phis[in.Result] = l.newLeaves(in.Type)
			}
		}
	}

	l.cur = entry
	l.jump(fr.blk[s.order[0]])
	fr.left[s.order[0]]++
	l.arrived(fr, s.order[0])
	for _, b := range s.order {
		l.cur = fr.blk[b]
		l.order = append(l.order, l.cur)
		l.body(f, s, b)
	}

	l.fr = fr.up
	if fr.up != nil {
		// The next call reuses this call's stack; privTop keeps the maximum.
		l.f.privTop[0] = max(l.f.privTop[0], l.f.privs[0])
		l.f.privTop[1] = max(l.f.privTop[1], l.f.privs[1])
		l.f.privs = privs
	}
}

// newLeaves numbers the leaves of a value that is treated like a promoted variable.
func (l *lowerer) newLeaves(typ spirv.ID) int32 {
	first := int32(len(l.leafWide))
	t := l.typ(typ)
	if t.leaves == 0 {
		return first
	}
	l.f.burn(l.src, t.leaves)
	if t.leaves > maxLeaves || len(l.leafWide) > 1<<20 {
		fail(l.src, "SPV-2900", "a value of %d scalars", t.leaves)
	}
	l.leafVisit(classPrivate, t, 0, func(t *tinfo, _ uint64) { l.leafWide = append(l.leafWide, t.wide) })
	return first
}

func (l *lowerer) leaves(typ spirv.ID, first, blk int32) []val {
	out := make([]val, l.typ(typ).leaves)
	for k := range out {
		out[k] = l.read(first+int32(k), blk)
	}
	return out
}

func (l *lowerer) jump(to int32) {
	l.f.blocks[l.cur].term = termJump
	l.edge(to)
}

// arrived counts a predecessor of b; the last one seals it.
func (l *lowerer) arrived(fr *frame, b int) {
	if fr.left[b]--; fr.left[b] == 0 {
		l.seal(fr.blk[b])
	}
}

func (l *lowerer) body(f *spirv.Function, s *shape, b int) {
	sb := f.Blocks[b]
	fr := l.fr
	for i := range sb.Insts {
		in := &sb.Insts[i]
		l.src = in
		l.f.burn(in, 1)
		if !idle(in.Op) {
			l.f.blocks[l.cur].busy = true
		}
		if in.Op == spirv.OpPhi {
			l.setResult(in, l.leaves(in.Type, fr.phis[in.Result], l.cur))
			continue
		}
		l.inst(in)
	}

	l.src = &sb.Term
	l.f.blocks[l.cur].src = &sb.Term
	for _, t := range s.succs[b] {
		l.phiOperands(f.Blocks[t], sb.Label)
	}

	switch sb.Term.Op {
	case spirv.OpBranch, spirv.OpBranchConditional, spirv.OpSwitch:
		l.branch(s, sb, s.succs[b])

	case spirv.OpReturn, spirv.OpReturnValue:
		if sb.Term.Op == spirv.OpReturnValue {
			for k, v := range l.value(sb.Term.Arg(0)) {
				l.write(fr.result+int32(k), l.cur, v)
			}
		}
		if fr.ret < 0 {
			l.f.blocks[l.cur].term = termReturn
		} else {
			l.jump(fr.ret)
		}

	case spirv.OpUnreachable:
		l.f.blocks[l.cur].term = termUnreachable
	default:
		fail(&sb.Term, "SPV-2901", "the lane engine does not know this end of a block")
	}

	for _, t := range s.succs[b] {
		l.arrived(fr, t)
	}
}

// idle reports whether an instruction leaves nothing for a lane to do.
func idle(o spirv.Opcode) bool {
	return o == spirv.OpPhi || o == spirv.OpNop || o == spirv.OpLine || o == spirv.OpNoLine
}

// phiOperands writes the operands of a block's phis for the edge from the block
// from.
func (l *lowerer) phiOperands(to *spirv.Block, from spirv.ID) {
	for i := range to.Insts {
		in := &to.Insts[i]
		if in.Op != spirv.OpPhi {
			break
		}
		for k := 0; k+1 < len(in.Args); k += 2 {
			if in.Arg(k+1) == from {
				for j, v := range l.value(in.Arg(k)) {
					l.write(l.fr.phis[in.Result]+int32(j), l.cur, v)
				}
			}
		}
	}
}

func (l *lowerer) branch(s *shape, sb *spirv.Block, succs []int) {
	if len(succs) == 1 {
		l.jump(l.fr.blk[succs[0]])
		return
	}

	cond := l.scalar(sb.Term.Arg(0))
	b := &l.f.blocks[l.cur]
	b.cond = cond
	if sb.Term.Op == spirv.OpBranchConditional {
		b.term = termBranch
		l.edge(l.fr.blk[s.index[sb.Targets[0]]])
		l.edge(l.fr.blk[s.index[sb.Targets[1]]])
		return
	}

	b.term = termSwitch
	to := make([]int32, len(sb.Targets))
	cases := append([]uint64(nil), sb.Cases...)
	for i, label := range sb.Targets {
		to[i] = l.edge(l.fr.blk[s.index[label]])
	}

	// Sorted, so that the engine can search. Equal cases were refused.
	sort.Sort(&byCase{cases, to[1:]})
	b = &l.f.blocks[l.cur]
	b.cases, b.to = cases, to
}

type byCase struct {
	cases []uint64
	to    []int32
}

func (s *byCase) Len() int           { return len(s.cases) }
func (s *byCase) Less(i, j int) bool { return s.cases[i] < s.cases[j] }
func (s *byCase) Swap(i, j int) {
	s.cases[i], s.cases[j] = s.cases[j], s.cases[i]
	s.to[i], s.to[j] = s.to[j], s.to[i]
}

// call inlines a function.
func (l *lowerer) call(in *spirv.Inst) {
	g := l.callee(in.Arg(0))
	if g == nil || len(g.Blocks) == 0 || len(g.Params)+1 != len(in.Args) {
		fail(in, "SPV-2901", "a call of what is not a function, or with the wrong arguments")
	}

	ret := l.newBlock()
	caller := l.fr
	var result int32
	l.function(g, func(fr *frame) {
		result = fr.result
		for k := range g.Params {
			p := &g.Params[k]
			if l.typ(p.Type).kind == typePointer {
				fr.ptrs[p.Result] = l.pointerIn(caller, in.Arg(k+1))
			} else {
				fr.vals[p.Result] = l.value(in.Arg(k + 1))
			}
		}
	}, ret)

	l.src = in
	l.cur = ret
	l.seal(ret)
	l.order = append(l.order, ret)
	if l.typ(in.Type).kind != typeVoid {
		l.setResult(in, l.leaves(in.Type, result, ret))
	}
}

func (l *lowerer) pointerIn(fr *frame, id spirv.ID) pointer {
	if p, ok := fr.ptrs[id]; ok {
		return p
	}
	return l.pointer(id)
}
