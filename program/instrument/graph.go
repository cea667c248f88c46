package instrument

import "capgpu/program/spirv"

// graph is a function's control flow with the edges that merge instructions make,
// and the nesting of its loops. It is built in time in proportion to the function.
type graph struct {
	*spirv.CFG
	loops  []loop
	own    []int   // by block: the loop that it heads, or -1
	in     []int   // the innermost loop around it, or -1; of a head the one around its own
	behind []bool  // it is in the continue construct of a loop around it
	dead   []bool  // no lane comes to it, and no loop continues by it: it is cut short
	preds  [][]int // by the branches alone, each once
}

type loop struct {
	head, merge, cont int // blocks
	parent            int // in loops, or -1
	returns           bool
}

func isLoop(b *spirv.Block) bool { return b.Merge != nil && b.Merge.Op == spirv.OpLoopMerge }

func newGraph(f *spirv.Function) *graph {
	n := len(f.Blocks)
	shadow := &spirv.Function{Blocks: make([]*spirv.Block, n)}
	for k, b := range f.Blocks {
		c := *b
		if c.Merge != nil {
			c.Targets = append(append([]spirv.ID(nil), b.Targets...), c.Merge.Arg(0))
			if isLoop(b) {
				c.Targets = append(c.Targets, c.Merge.Arg(1))
			}
		}
		shadow.Blocks[k] = &c
	}

	g := &graph{CFG: spirv.NewCFG(shadow), own: make([]int, n), in: make([]int, n), behind: make([]bool, n), preds: make([][]int, n)}
	for k, b := range f.Blocks {
		g.own[k], g.in[k] = -1, -1
		if isLoop(b) {
			g.own[k] = len(g.loops)
			g.loops = append(g.loops, loop{head: k, merge: g.Index[b.Merge.Arg(0)], cont: g.Index[b.Merge.Arg(1)], parent: -1})
		}

		for _, label := range b.Targets {
			t := g.Index[label]
			if p := g.preds[t]; len(p) == 0 || p[len(p)-1] != k {
				g.preds[t] = append(p, k)
			}
		}
	}

	g.nest()
	g.findDead(f)
	for k, b := range f.Blocks {
		for l := g.inside(k); len(b.Targets) == 0 && l >= 0 && !g.loops[l].returns; l = g.loops[l].parent {
			g.loops[l].returns = true
		}
	}
	return g
}

// inside is the innermost loop that a block belongs to: its own, if it heads one.
func (g *graph) inside(block int) int {
	if g.own[block] >= 0 {
		return g.own[block]
	}
	return g.in[block]
}

// findDead finds the blocks that no branch leads to from the function's first. A continue
// construct has to stay with its loop, also where no lane continues.
func (g *graph) findDead(f *spirv.Function) {
	plain := spirv.NewCFG(f)
	var stays func(loop int) bool
	stays = func(loop int) bool {
		l := &g.loops[loop]
		return plain.Reachable(l.head) || g.behind[l.head] && l.parent >= 0 && stays(l.parent)
	}

	g.dead = make([]bool, len(f.Blocks))
	for k := range f.Blocks {
		at := g.inside(k)
		g.dead[k] = !plain.Reachable(k) && !(g.behind[k] && at >= 0 && stays(at))
	}
	for i, l := range g.loops {
		if stays(i) {
			g.dead[l.cont] = false
		}
	}
}

// nest places every block into its loop: from dominators down.
func (g *graph) nest() {
	for _, b := range g.RPO {
		at, behind := -1, false
		if d := g.Idom[b]; d >= 0 {
			at, behind = g.inside(d), g.behind[d]
		}
		if at >= 0 && b == g.loops[at].merge {
			head := g.loops[at].head
			at, behind = g.in[head], g.behind[head]
		}
		if at >= 0 && b == g.loops[at].cont && b != g.loops[at].head {
			behind = true
		}

		g.in[b], g.behind[b] = at, behind
		if l := g.own[b]; l >= 0 {
			g.loops[l].parent = at
		}
	}
}

// within reports whether a block belongs to a loop. Constructs are nested to a
// bounded depth.
func (g *graph) within(block, l int) bool {
	for at := g.inside(block); at >= 0; at = g.loops[at].parent {
		if at == l {
			return true
		}
	}
	return false
}
