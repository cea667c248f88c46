package lane

// domTree answers at once which block dominates which: the blocks below a block in
// the dominator tree follow it in a pre-order numbering. Walking up the tree
// instead would take long in a function of thousands of blocks.
type domTree []domNode

type domNode struct{ at, size int32 }

// domTree numbers the tree. Blocks come after the blocks that dominate them.
func (f *fn) domTree() domTree {
	t := make(domTree, len(f.blocks))
	for b := len(t) - 1; b >= 0; b-- {
		t[b].size++
		if b > 0 {
			t[f.blocks[b].idom].size += t[b].size
		}
	}

	next := make([]int32, len(t)) // the number of the next child of each block
	if len(t) > 0 {
		next[0] = 1
	}

	for b := 1; b < len(t); b++ {
		above := f.blocks[b].idom
		t[b].at = next[above]
		next[above] += t[b].size
		next[b] = t[b].at + 1
	}

	return t
}

func (t domTree) dominates(a, b int32) bool {
	return t[a].at <= t[b].at && t[b].at < t[a].at+t[a].size
}
