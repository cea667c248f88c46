package lanetest

import "capgpu/program/spirv"

// branch goes to a block. A lane with nothing left but to return has returned.
func (t *thread) branch(fr *frame, label spirv.ID) {
	to := fr.fn.cfg.Index[label]
	if t.empties(len(t.frames)-1, to, 0) {
		t.state = ended
		return
	}
	t.enter(fr, to)
}

// leaves reports whether nothing but returns comes after the calls in the frames up to
// number n.
func (t *thread) leaves(n int) bool {
	if n < 0 {
		return true
	}
	fr := t.frames[n]
	return t.empties(n, fr.at, fr.pc+1)
}

// empties reports whether a block, from an instruction on, leads to nothing but the
// lane's end.
func (t *thread) empties(n, at, from int) bool {
	fr := t.frames[n]
	for {
		b := fr.fn.Blocks[at]
		for i := from; i < len(b.Insts); i++ {
			switch b.Insts[i].Op {
			case spirv.OpPhi, spirv.OpNop, spirv.OpLine, spirv.OpNoLine:
			default:
				return false
			}
		}

		switch b.Term.Op {
		case spirv.OpReturn, spirv.OpReturnValue:
			return t.leaves(n - 1)
		case spirv.OpBranch:
		default:
			return false
		}

		next := fr.fn.cfg.Index[b.Targets[0]]
		if fr.fn.order[next] <= fr.fn.order[at] {
			return false
		}
		at, from = next, 0
	}
}
