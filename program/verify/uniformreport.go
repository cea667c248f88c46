package verify

import (
	"capgpu/program/spirv"
)

// report makes the warnings.
func (u *uniformity) report(fn *function, f *flowState) {
	v := u.v
	for b, block := range fn.cfg.Blocks {
		if !fn.cfg.Reachable(b) {
			continue
		}

		for j := range block.Insts {
			in := &block.Insts[j]
			switch in.Op {
			case spirv.OpControlBarrier:
				if scope, _ := v.literal(in.Arg(0)); spirv.Scope(scope) == spirv.ScopeWorkgroup && f.blocks[b] {
					v.warn(WarnBarrier, in, "a barrier that not all lanes of the workgroup may reach")
				}
			case spirv.OpGroupNonUniformShuffle, spirv.OpGroupNonUniformBroadcast:
				if v.info(in.Arg(2)).what != isConstant {
					v.warn(WarnShuffle, in, "the source lane depends on a value at run time; an inactive one gives an unspecified value")
				}
			case spirv.OpGroupNonUniformShuffleXor, spirv.OpGroupNonUniformShuffleUp, spirv.OpGroupNonUniformShuffleDown:
				if u.value[in.Arg(2)] {
					v.warn(WarnShuffle, in, "the source lane depends on a value at run time that may differ between lanes")
				}
			}
		}

		if own := fn.s.own[b]; own >= 0 && fn.s.constructs[own].kind == loop && f.blocks[b] && u.endless(fn, own) {
			v.warn(WarnStarvation, block.Merge, "the loop has no end, and lanes that are not in it wait for it")
		}
	}
}

// endless reports whether no branch leads out of a loop. Branches on constants are
// taken as they are. After too long a search it returns false.
func (u *uniformity) endless(fn *function, x int32) bool {
	v, s, c := u.v, fn.s, fn.cfg
	first := int(s.constructs[x].header)
	if len(u.seen) < len(c.Blocks) {
		u.seen = make([]int32, len(c.Blocks))
	}

	u.search++
	u.seen[first] = u.search
	todo := append(u.todo[:0], first)
	for len(todo) > 0 {
		b := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		next := c.Succs[b]
		if len(next) == 0 {
			return false
		}

		if t := &c.Blocks[b].Term; t.Op == spirv.OpBranchConditional {
			if k := v.constant(t.Arg(0)); k != nil && k.deps == 0 {
				which := 1
				if k.bits == 0 {
					which = 2
				}
				next = []int{c.Index[t.Arg(which)]}
			}
		}

		if v.steps -= len(next) + 1; v.steps < 0 {
			return false
		}

		for _, t := range next {
			if t == int(s.constructs[x].merge) || !s.within(s.in[t], x) && t != first {
				return false
			}
			if u.seen[t] != u.search {
				u.seen[t] = u.search
				todo = append(todo, t)
			}
		}

		u.todo = todo
	}

	return true
}
