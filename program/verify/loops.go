package verify

import (
	"capgpu/program"
)

// fallThrough checks a branch within a construct: in a switch from one case only
// to the next.
func (v *verifier) fallThrough(fn *function, s *structure, b, t int) *program.Refusal {
	x := &s.constructs[s.in[t]]
	if x.kind != switched || int(x.header) == b {
		return nil
	}

	from := s.cases[b]
	if s.cases[t] == from {
		return nil
	}

	in := &fn.cfg.Blocks[b].Term
	if int(s.cases[t]) != t {
		return v.refuse(CodeSwitch, in, "a branch into the middle of a case")
	}
	if from < 0 || s.first[from] != 0 && s.first[t] != 0 && s.first[t] != s.last[from]+1 || s.entered[t] >= 0 && s.entered[t] != from {
		return v.refuse(CodeSwitch, in, "a fall-through from %%%d to %%%d, which is not the next case", fn.cfg.Blocks[max(from, 0)].Label, fn.cfg.Blocks[t].Label)
	}

	s.entered[t] = from
	return nil
}

// switchCases checks that the cases of a switch begin at its header.
func (v *verifier) switchCases(fn *function, s *structure, b int) *program.Refusal {
	x := &s.constructs[s.own[b]]
	for i, label := range fn.cfg.Blocks[b].Targets {
		t := fn.cfg.Index[label]
		if t == int(x.merge) || s.in[t] != s.own[b] {
			continue // a break or continue, which edge checks
		}
		if s.graph.Idom[t] != b {
			return v.refuse(CodeSwitch, &fn.cfg.Blocks[b].Term, "the case %%%d is reached by other ways than the switch and a fall-through", fn.cfg.Blocks[t].Label)
		}
		if s.last[t] = int32(i); s.first[t] <= 0 {
			s.first[t] = int32(i)
		}
	}
	return nil
}

// loops checks that every loop goes back once, from the end of its continue
// construct.
func (v *verifier) loops(fn *function, s *structure) *program.Refusal {
	for i := range s.constructs {
		x := &s.constructs[i]
		if x.kind != loop {
			continue
		}
		m := fn.cfg.Blocks[x.header].Merge
		if x.back < 0 {
			return v.refuse(CodeLoop, m, "no branch back to the loop's header")
		}
		if !s.graph.Dominates(int(x.cont), int(x.back)) {
			return v.refuse(CodeLoop, m, "the branch back is not in the continue construct")
		}
	}
	return nil
}
