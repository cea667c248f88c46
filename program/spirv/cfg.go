package spirv

// CFG is the control flow of a function. Blocks are named by their index in
// Function.Blocks; 0 is the entry. It is built in time and memory in proportion to
// the function, whatever its shape (dominators: × log of it).
type CFG struct {
	Blocks []*Block
	Index  map[ID]int // by label
	Succs  [][]int    // each successor once, in the terminator's order
	Preds  [][]int    // each predecessor once, ascending
	RPO    []int      // reachable blocks in reverse post order, the entry first
	Idom   []int      // immediate dominator; -1: entry or unreachable

	first, last []int32 // a block's span in a walk of the dominator tree; -1, -1: unreachable
}

// NewCFG is total on any parsed function. Parse has checked that every label is
// there; in a function of another origin, an edge to an unknown label is left out.
func NewCFG(f *Function) *CFG {
	n := len(f.Blocks)
	c := &CFG{
		Blocks: f.Blocks,
		Index:  make(map[ID]int, n),
		Succs:  make([][]int, n),
		Preds:  make([][]int, n),
		Idom:   make([]int, n),
		first:  make([]int32, n),
		last:   make([]int32, n),
	}

	for i, b := range f.Blocks {
		c.Index[b.Label] = i
		c.Idom[i], c.first[i], c.last[i] = -1, -1, -1
	}

	c.link()
	if n > 0 {
		c.order()
	}

	return c
}

// Reachable reports whether there is a path from the entry to b.
func (c *CFG) Reachable(b int) bool { return c.first[b] >= 0 }

// Dominates reports whether every path from the entry to b leads through a. A block
// dominates itself; otherwise an unreachable one neither dominates nor is
// dominated.
func (c *CFG) Dominates(a, b int) bool {
	return a == b || c.first[a] >= 0 && c.first[a] <= c.first[b] && c.last[b] <= c.last[a]
}

// link fills Succs and Preds.
func (c *CFG) link() {
	seen := make([]int, len(c.Blocks)) // 1 + the last block that had it as a successor
	for i, b := range c.Blocks {
		for _, label := range b.Targets {
			j, ok := c.Index[label]
			if !ok {
				continue
			}
			if seen[j] == i+1 {
				continue
			}
			seen[j] = i + 1
			c.Succs[i] = append(c.Succs[i], j)
			c.Preds[j] = append(c.Preds[j], i)
		}
	}
}

// order walks the graph depth first, without recursion: a hostile function is
// as deep as it is long.
func (c *CFG) order() {
	n := len(c.Blocks)
	number := make([]int32, n) // in pre-order; -1: not seen
	for i := range number {
		number[i] = -1
	}

	var (
		vertex []int32 // by number: block
		parent []int32 // by number: number
		post   []int
		stack  []int32
		next   = make([]int32, n) // next successor to visit
	)

	visit := func(b int, from int32) {
		number[b] = int32(len(vertex))
		vertex = append(vertex, int32(b))
		parent = append(parent, from)
		stack = append(stack, int32(b))
	}

	visit(0, 0)
	for len(stack) > 0 {
		b := stack[len(stack)-1]
		if int(next[b]) == len(c.Succs[b]) {
			post = append(post, int(b))
			stack = stack[:len(stack)-1]
			continue
		}
		s := c.Succs[b][next[b]]
		next[b]++
		if number[s] < 0 {
			visit(s, number[b])
		}
	}

	for i, j := 0, len(post)-1; i < j; i, j = i+1, j-1 {
		post[i], post[j] = post[j], post[i]
	}

	c.RPO = post

	idom := c.dominators(number, vertex, parent)
	c.spans(idom, vertex)
}

// dominators is the algorithm of Lengauer and Tarjan (1979) with simple linking.
// The shorter, iterative one is quadratic on graphs that a hostile module can have.
// Everything is by number: a block's place in pre-order.
func (c *CFG) dominators(number, vertex, parent []int32) []int32 {
	n := len(vertex)
	words := make([]int32, 6*n)
	take := func() []int32 { s := words[:n:n]; words = words[n:]; return s }
	semi, label, ancestor, idom, bucket, chain := take(), take(), take(), take(), take(), take()
	for i := range n {
		semi[i], label[i], ancestor[i], bucket[i] = int32(i), int32(i), -1, -1
	}

	var path []int32
	eval := func(v int32) int32 {
		if ancestor[v] < 0 {
			return v
		}

		path = path[:0]
		for u := v; ancestor[ancestor[u]] >= 0; u = ancestor[u] {
			path = append(path, u)
		}

		for i := len(path) - 1; i >= 0; i-- {
			u := path[i]
			a := ancestor[u]
			if semi[label[a]] < semi[label[u]] {
				label[u] = label[a]
			}
			ancestor[u] = ancestor[a]
		}

		return label[v]
	}

	for w := int32(n - 1); w > 0; w-- {
		for _, p := range c.Preds[vertex[w]] {
			if number[p] >= 0 {
				semi[w] = min(semi[w], semi[eval(number[p])])
			}
		}

		chain[w], bucket[semi[w]] = bucket[semi[w]], w
		up := parent[w]
		ancestor[w] = up
		for v := bucket[up]; v >= 0; v = chain[v] {
			if u := eval(v); semi[u] < semi[v] {
				idom[v] = u
			} else {
				idom[v] = up
			}
		}

		bucket[up] = -1
	}

	for w := 1; w < n; w++ {
		if idom[w] != semi[w] {
			idom[w] = idom[idom[w]]
		}
	}

	return idom
}

// spans fills Idom, and gives each block the span of its subtree. A dominator has a
// smaller number than the blocks that it dominates, so no walk is needed.
func (c *CFG) spans(idom, vertex []int32) {
	n := len(vertex)
	size := make([]int32, n)
	for w := n - 1; w > 0; w-- {
		size[w]++
		size[idom[w]] += size[w]
	}

	size[0]++
	free := make([]int32, n) // where the next child's span begins
	free[0] = 1
	c.first[0], c.last[0] = 0, size[0]-1
	for w := 1; w < n; w++ {
		b, up := vertex[w], idom[w]
		start := free[up]
		free[up] += size[w]
		free[w] = start + 1
		c.Idom[b] = int(vertex[up])
		c.first[b], c.last[b] = start, start+size[w]-1
	}
}
