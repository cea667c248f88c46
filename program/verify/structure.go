package verify

import (
	"slices"

	"capgpu/program"
	"capgpu/program/spirv"
)

// construct is a region of structured control flow: the blocks that its header
// dominates and its merge block does not. It is left by its merge block, or by a
// break, continue or return.
type construct struct {
	kind   constructKind
	parent int32 // in structure.constructs
	header int32 // blocks
	merge  int32
	cont   int32 // of a loop: its continue target
	back   int32 // of a loop: the block with the branch back
	depth  int32
}

type constructKind uint8

const (
	body constructKind = iota // the whole function
	selection
	switched
	loop
	continued // of a loop, from its continue target on; its header and merge are the loop's
)

// structure is the nesting of a function's constructs.
type structure struct {
	constructs []construct
	// in is the construct of a block: for a header the one around its own.
	in []int32
	// own is the construct with the block as its header, or -1.
	own []int32
	// cases is the case (the block at its start) of a block within its construct,
	// if that is a switch; or -1.
	cases []int32
	// first and last are the places of the case that begins at a block among the
	// targets of its switch: 0 if it is only the default. entered is the case that
	// falls through to it.
	first, last, entered []int32
	// place is a block's place in the reverse post order of graph: a branch that
	// does not go forward in it closes a cycle.
	place []int32
	// graph has, besides the branches, edges from headers to their merge blocks
	// and continue targets.
	graph *spirv.CFG
}

// inside is the construct of what a block branches from.
func (s *structure) inside(b int) int32 {
	if s.own[b] >= 0 {
		return s.own[b]
	}
	return s.in[b]
}

// structured finds the constructs of a function and checks the rules of structured
// control flow (SPIR-V 2.11), a little more strictly where they allow code that no
// compiler emits: see docs/program-profile.md.
func (v *verifier) structured(fn *function) (*structure, *program.Refusal) {
	n := len(fn.cfg.Blocks)
	words := make([]int32, 7*n)
	for i := range words {
		words[i] = -1
	}

	s := &structure{in: words[:n], own: words[n : 2*n], cases: words[2*n : 3*n],
		first: words[3*n : 4*n], last: words[4*n : 5*n], entered: words[5*n : 6*n], place: words[6*n:]}
	if r := v.headers(fn, s); r != nil {
		return nil, r
	}

	for i, b := range s.graph.RPO {
		s.place[b] = int32(i)
	}

	if r := v.nest(fn, s); r != nil {
		return nil, r
	}

	// In this order a switch comes before its cases, and records their places.
	for _, b := range s.graph.RPO {
		if r := v.branches(fn, s, b); r != nil {
			return nil, r
		}
	}

	return s, v.loops(fn, s)
}

// headers collects merge instructions and makes the graph.
func (v *verifier) headers(fn *function, s *structure) *program.Refusal {
	c := fn.cfg
	shadow := &spirv.Function{Blocks: make([]*spirv.Block, len(c.Blocks))}
	s.constructs = append(s.constructs, construct{kind: body, parent: -1, header: -1, merge: -1, cont: -1, back: -1})
	taken := make([]bool, len(c.Blocks)) // as a merge or continue target
	live, conts := alive(c)
	for i, b := range c.Blocks {
		shadow.Blocks[i] = b
		if !live[i] {
			s.in[i] = 0
			if b.Merge != nil || len(b.Targets) > 1 || len(c.Succs[i]) == 1 && (c.Succs[i][0] <= i || conts[c.Succs[i][0]]) {
				return program.Refuse(CodeDead, spirv.OpLabel.String(), b.Off, "nothing leads to the block %%%d, and it branches both ways, back, or to a continue target", b.Label)
			}
			continue
		}
		if b.Merge == nil {
			continue
		}

		m := b.Merge
		x := construct{header: int32(i), cont: -1, back: -1, parent: -1}
		targets := append(slices.Clone(b.Targets), m.Arg(0))
		control := m.Arg(1)
		switch {
		case m.Op == spirv.OpLoopMerge:
			if x.kind = loop; b.Term.Op != spirv.OpBranch && b.Term.Op != spirv.OpBranchConditional {
				return v.refuse(CodeMerge, m, "before %v", b.Term.Op)
			}
			targets = append(targets, m.Arg(1))
			control = m.Arg(2)
			cont, ok := c.Index[m.Arg(1)]
			if !ok || taken[cont] {
				return v.refuse(CodeMerge, m, "the continue target %%%d is no block of the function, or has another role", m.Arg(1))
			}
			taken[cont], x.cont = true, int32(cont)

		case b.Term.Op == spirv.OpSwitch:
			x.kind = switched
		case b.Term.Op == spirv.OpBranchConditional:
			x.kind = selection

		default:
			return v.refuse(CodeMerge, m, "before %v", b.Term.Op)
		}

		if control > 2 {
			return v.refuse(CodeMemory, m, "control %#x is outside the profile", control)
		}

		merge, ok := c.Index[m.Arg(0)]
		if !ok || taken[merge] || merge == i {
			return v.refuse(CodeMerge, m, "the merge block %%%d is no block of the function, or has another role", m.Arg(0))
		}

		taken[merge], x.merge = true, int32(merge)
		s.own[i] = int32(len(s.constructs))
		s.constructs = append(s.constructs, x)
		copied := *b
		copied.Targets = targets
		shadow.Blocks[i] = &copied
	}

	if s.graph = c; len(s.constructs) > 1 {
		s.graph = spirv.NewCFG(shadow)
	}

	return nil
}

// alive are the blocks that branches lead to, or merge instructions of such blocks.
// Nothing else ever runs: it is in no construct. conts are the continue targets.
func alive(c *spirv.CFG) (live, conts []bool) {
	live, conts = make([]bool, len(c.Blocks)), make([]bool, len(c.Blocks))
	todo := []int{0}
	live[0] = true
	visit := func(label spirv.ID) {
		if t, ok := c.Index[label]; ok && !live[t] {
			live[t] = true
			todo = append(todo, t)
		}
	}

	for len(todo) > 0 {
		b := c.Blocks[todo[len(todo)-1]]
		todo = todo[:len(todo)-1]
		for _, label := range b.Targets {
			visit(label)
		}
		if b.Merge == nil {
			continue
		}
		visit(b.Merge.Arg(0))
		if b.Merge.Op == spirv.OpLoopMerge {
			visit(b.Merge.Arg(1))
			if t, ok := c.Index[b.Merge.Arg(1)]; ok {
				conts[t] = true
			}
		}
	}

	return live, conts
}

// nest places every block into its construct: from dominators down.
func (v *verifier) nest(fn *function, s *structure) *program.Refusal {
	g := s.graph
	ends := make([]int32, len(g.Blocks))      // construct that the block is the merge of, 0 if none
	continues := make([]int32, len(g.Blocks)) // loop that the block is the continue target of
	for i := range s.constructs {
		x := &s.constructs[i]
		if x.merge < 0 {
			continue
		}
		m := g.Blocks[x.header].Merge
		if !g.Dominates(int(x.header), int(x.merge)) {
			return v.refuse(CodeMerge, m, "the merge block %%%d is reached by other ways than its header", m.Arg(0))
		}
		ends[x.merge] = int32(i)
		if x.kind == loop {
			if !g.Dominates(int(x.header), int(x.cont)) || g.Dominates(int(x.merge), int(x.cont)) {
				return v.refuse(CodeMerge, m, "the continue target %%%d is not inside its loop", m.Arg(1))
			}
			continues[x.cont] = int32(i)
		}
	}

	for _, b := range g.RPO {
		at := int32(0)
		if d := g.Idom[b]; d >= 0 {
			at = s.inside(d)
			if s.constructs[at].kind == switched {
				s.cases[b] = s.cases[d]
				if int(s.constructs[at].header) == d {
					s.cases[b] = int32(b)
				}
			}
		}

		if x := ends[b]; x != 0 {
			if !s.within(at, x) {
				return v.refuse(CodeMerge, g.Blocks[s.constructs[x].header].Merge, "the merge block %%%d is not next to its construct", g.Blocks[b].Label)
			}
			at = s.constructs[x].parent
			s.cases[b] = s.cases[s.constructs[x].header]
		}

		if x := continues[b]; x != 0 && int(s.constructs[x].header) != b {
			if at != x {
				return v.refuse(CodeMerge, g.Blocks[s.constructs[x].header].Merge, "the continue target %%%d lies inside another construct of the loop", g.Blocks[b].Label)
			}
			s.constructs = append(s.constructs, construct{kind: continued, parent: x, header: s.constructs[x].header,
				merge: s.constructs[x].merge, cont: int32(b), back: -1, depth: s.constructs[x].depth + 1})
			at = int32(len(s.constructs) - 1)
		}

		s.in[b] = at
		if x := s.own[b]; x >= 0 {
			s.constructs[x].parent = at
			if s.constructs[x].depth = s.constructs[at].depth + 1; int(s.constructs[x].depth) > v.lim.Nesting {
				return v.refuse(CodeDeep, g.Blocks[b].Merge, "constructs nested deeper than %d", v.lim.Nesting)
			}
		}
	}

	return nil
}

// within reports whether construct a is x or inside it. Depths are bounded.
func (s *structure) within(a, x int32) bool {
	for ; a >= 0; a = s.constructs[a].parent {
		if a == x {
			return true
		}
	}
	return false
}

// branches checks the targets of a block.
func (v *verifier) branches(fn *function, s *structure, b int) *program.Refusal {
	block := fn.cfg.Blocks[b]
	in := &block.Term
	from := s.inside(b)
	if len(block.Targets) == 0 && in.Op != spirv.OpUnreachable {
		for x := from; x > 0; x = s.constructs[x].parent {
			if s.constructs[x].kind == continued {
				return v.refuse(CodeExit, in, "a return from a continue construct")
			}
		}
	}

	if in.Op == spirv.OpSwitch {
		if block.Merge == nil {
			return v.refuse(CodeNoMerge, in, "a switch without OpSelectionMerge")
		}
		if r := v.switchCases(fn, s, b); r != nil {
			return r
		}
	}

	inner := 0
	for _, t := range fn.cfg.Succs[b] {
		stays, r := v.edge(fn, s, b, t)
		if r != nil {
			return r
		}
		if stays {
			inner++
		}
	}

	if inner > 1 && (block.Merge == nil || block.Merge.Op == spirv.OpLoopMerge) {
		return v.refuse(CodeNoMerge, in, "a branch to two blocks of one construct without OpSelectionMerge")
	}

	return nil
}

// edge checks one branch: it stays in the construct, or leaves it in an allowed
// way.
func (v *verifier) edge(fn *function, s *structure, b, t int) (stays bool, _ *program.Refusal) {
	in := &fn.cfg.Blocks[b].Term
	from := s.inside(b)
	label := fn.cfg.Blocks[t].Label
	crossed := construct{} // kinds passed on the way out
	first := true
	for at := from; at >= 0; {
		x := &s.constructs[at]
		isBack := false
		switch x.kind {
		case body:
		case continued:
			l := &s.constructs[x.parent]
			isBack = first && t == int(l.header)
			if isBack {
				x = l
			} else if t == int(x.merge) && first && slices.Contains(fn.cfg.Succs[b], int(l.header)) {
				return false, nil
			}

		case loop:
			isBack = int(x.cont) == int(x.header) && b == int(x.header) && t == b
			if crossed.kind != loop && (t == int(x.merge) || t == int(x.cont) && !isBack && x.cont != x.header) {
				return false, nil
			}

		case switched:
			if crossed.kind == body && t == int(x.merge) {
				return false, nil
			}

		case selection:
			if first && t == int(x.merge) {
				return false, nil
			}
		}

		if isBack {
			if x.back >= 0 {
				return false, v.refuse(CodeLoop, in, "a second branch back to the loop at %%%d", label)
			}
			x.back = int32(b)
			return false, nil
		}

		if first && s.in[t] == at && s.place[t] > s.place[b] {
			return true, v.fallThrough(fn, s, b, t)
		}

		first = false
		switch x.kind {
		case loop:
			crossed.kind = loop
		case switched:
			if crossed.kind == body {
				crossed.kind = switched
			}
		case continued:
			crossed.kind = loop
			at = s.constructs[at].parent // the loop itself: left only by the branch back
		}

		at = s.constructs[at].parent
	}

	if s.place[t] <= s.place[b] {
		return false, v.refuse(CodeLoop, in, "a branch back to %%%d that is not from the continue construct of a loop there", label)
	}

	return false, v.refuse(CodeExit, in, "the branch to %%%d leaves its construct, or enters one, other than structured control flow allows", label)
}
