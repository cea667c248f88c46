package instrument

import "capgpu/program/spirv"

// findTails finds the blocks of the entry point that have nothing left but to
// return, in a program with barriers. A lane on its way there has returned for the
// barriers of others (docs/program-profile.md), so it records before it goes.
func (r *rewriter) findTails(f *spirv.Function, g *graph) {
	r.tails = nil
	if !r.inEntry || !r.hasBarrier() {
		return
	}

	r.tails = make([]bool, len(f.Blocks))
	for k := len(f.Blocks) - 1; k >= 0; k-- {
		b := f.Blocks[k]
		next := b.Term.Op == spirv.OpBranch && b.Merge == nil && g.Index[b.Targets[0]] > k && r.tails[g.Index[b.Targets[0]]]
		r.tails[k] = (next || b.Term.Op == spirv.OpReturn) && isIdle(b)
	}
}

func (r *rewriter) hasBarrier() bool {
	for _, f := range r.m.Functions {
		for _, b := range f.Blocks {
			for i := range b.Insts {
				if b.Insts[i].Op == spirv.OpControlBarrier {
					return true
				}
			}
		}
	}
	return false
}

func isIdle(b *spirv.Block) bool {
	for i := range b.Insts {
		switch b.Insts[i].Op {
		case spirv.OpPhi, spirv.OpNop, spirv.OpLine, spirv.OpNoLine:
		default:
			return false
		}
	}
	return true
}

// isTail reports that a block is one of those.
func (r *rewriter) isTail(block int) bool { return r.tails != nil && r.tails[block] }

// leadsToTail reports that a block that is no tail has a branch to one.
func (r *rewriter) leadsToTail(g *graph, n int, b *spirv.Block) bool {
	for _, label := range b.Targets {
		if r.isTail(g.Index[label]) && !r.isTail(n) {
			return true
		}
	}
	return false
}
