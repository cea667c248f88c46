package lanetest

import (
	"slices"

	"capgpu/program/spirv"
)

// function is a function with its blocks in an order in which a construct's blocks
// come before its merge block, and a loop's before its continue construct.
type function struct {
	*spirv.Function
	cfg   *spirv.CFG
	order []int   // place of each block
	loops [][]int // headers of the loops that a block is in, the outermost first
}

func newFunction(f *spirv.Function) *function {
	fn := &function{Function: f, cfg: spirv.NewCFG(f), order: make([]int, len(f.Blocks)), loops: make([][]int, len(f.Blocks))}
	seen := make([]bool, len(f.Blocks))
	place := len(f.Blocks)

	// A block is placed before all blocks that were placed earlier, so the last
	// ones have to be visited first.
	var visit func(b int)
	visit = func(b int) {
		if seen[b] {
			return
		}

		seen[b] = true
		block := f.Blocks[b]
		if m := block.Merge; m != nil {
			visit(fn.cfg.Index[m.Arg(0)])
			if m.Op == spirv.OpLoopMerge {
				visit(fn.cfg.Index[m.Arg(1)])
			}
		}

		for _, label := range slices.Backward(block.Targets) {
			visit(fn.cfg.Index[label])
		}

		place--
		fn.order[b] = place
	}

	visit(0)
	for h, header := range f.Blocks {
		if header.Merge == nil || header.Merge.Op != spirv.OpLoopMerge || !fn.cfg.Reachable(h) {
			continue
		}
		merge := fn.cfg.Index[header.Merge.Arg(0)]
		for b := range f.Blocks {
			if fn.cfg.Reachable(b) && fn.cfg.Dominates(h, b) && !fn.cfg.Dominates(merge, b) {
				fn.loops[b] = append(fn.loops[b], h)
			}
		}
	}

	for b := range fn.loops {
		slices.SortFunc(fn.loops[b], func(x, y int) int {
			if x != y && fn.cfg.Dominates(x, y) {
				return -1
			}
			return 1
		})
	}

	return fn
}
