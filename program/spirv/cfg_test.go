package spirv_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/internal/proctest"
	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
)

// graph is a function in which block i leads to edges[i]. Merges are left out,
// because a CFG ignores them.
func graph(t testing.TB, edges [][]int) *spirv.Function {
	b := spirvtest.New()
	labels := make([]spirv.ID, len(edges))
	for i := range labels {
		labels[i] = b.ID()
	}

	b.FuncHead(b.Void())
	for i, to := range edges {
		b.Begin(labels[i])
		switch len(to) {
		case 0:
			b.Return()
		case 1:
			b.Branch(labels[to[0]])
		case 2:
			b.BranchIf(b.BoolConst(true), labels[to[0]], labels[to[1]])
		default:
			args := []any{b.U32(0), labels[to[0]]}
			for k, j := range to[1:] {
				args = append(args, k, labels[j])
			}
			b.Do(spirv.OpSwitch, args...)
		}
	}

	b.End()
	m, err := spirv.Parse(b.Bytes())
	require.NoError(t, err)
	return m.Functions[0]
}

// reach is the set of blocks that can be reached from the entry without going
// through avoid.
func reach(edges [][]int, avoid int) []bool {
	seen := make([]bool, len(edges))
	var walk func(int)
	walk = func(i int) {
		if i == avoid || seen[i] {
			return
		}
		seen[i] = true
		for _, j := range edges[i] {
			walk(j)
		}
	}
	walk(0)
	return seen
}

func checkCFG(t *testing.T, edges [][]int, c *spirv.CFG) {
	n := len(edges)
	reachable := reach(edges, -1)
	count := 0
	for i := range n {
		require.Equal(t, reachable[i], c.Reachable(i))
		require.Equal(t, i, c.Index[c.Blocks[i].Label])
		if reachable[i] {
			count++
		}
		seen := map[int]bool{}
		for _, j := range edges[i] {
			seen[j] = true
			require.Contains(t, c.Succs[i], j)
			require.Contains(t, c.Preds[j], i)
		}
		require.Len(t, c.Succs[i], len(seen))
		require.IsIncreasing(t, append([]int{-1}, c.Preds[i]...))
	}

	require.Len(t, c.RPO, count)
	require.Zero(t, c.RPO[0])

	// a dominates b if there is no path to b without a.
	dominates := make([][]bool, n)
	for a := range n {
		without := reach(edges, a)
		dominates[a] = make([]bool, n)
		for b := range n {
			dominates[a][b] = a == b || reachable[a] && reachable[b] && !without[b]
			require.Equal(t, dominates[a][b], c.Dominates(a, b), "%d dominates %d in %v", a, b, edges)
		}
	}

	place := map[int]int{}
	for k, i := range c.RPO {
		place[i] = k
	}

	for i := range n {
		if i == 0 || !reachable[i] {
			require.Equal(t, -1, c.Idom[i])
			continue
		}
		up := c.Idom[i]
		require.Less(t, place[up], place[i])
		for a := range n { // every other dominator dominates the immediate one
			if a != i && dominates[a][i] {
				require.True(t, dominates[a][up], "%d is not the immediate dominator of %d in %v", up, i, edges)
			}
		}
	}
}

// Random graphs against the definition of dominance.
func TestCFGOnRandomGraphs(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 400 {
		n := 1 + rng.IntN(12)
		edges := make([][]int, n)
		for i := range edges {
			for range rng.IntN(4) {
				edges[i] = append(edges[i], rng.IntN(n))
			}
		}
		checkCFG(t, edges, spirv.NewCFG(graph(t, edges)))
	}
}

func TestCFGOfCompiledModules(t *testing.T) {
	for _, data := range modules(t) {
		m, err := spirv.Parse(data)
		require.NoError(t, err)
		for _, f := range m.Functions {
			c := spirv.NewCFG(f)
			edges := make([][]int, len(f.Blocks))
			for i, b := range f.Blocks {
				for _, label := range b.Targets {
					edges[i] = append(edges[i], c.Index[label])
				}
			}
			checkCFG(t, edges, c)
		}
	}
}

// A CFG is fast also for shapes that slow down simpler algorithms: deep, wide, and
// ladders with back edges that make an iterative dominator algorithm start again.
func TestCFGIsQuickOnHostileGraphs(t *testing.T) {
	const n = 8000
	chain, ladder, fan := make([][]int, n), make([][]int, n), make([][]int, n)
	for i := range n - 1 {
		chain[i] = []int{i + 1}
		ladder[i] = []int{i + 1, max(i-1, 1)}
		if i < n/2 {
			ladder[i] = []int{i + 1, n - 1 - i}
		}
		fan[0] = append(fan[0], i+1)
		fan[i+1] = []int{1 + (i+7)%(n-1), 1 + (i*13)%(n-1)}
	}

	for name, edges := range map[string][][]int{"chain": chain, "ladder": ladder, "fan": fan} {
		f := graph(t, edges)
		var c *spirv.CFG
		took := proctest.CPU(func() { c = spirv.NewCFG(f) })
		require.Len(t, c.RPO, n, name)
		require.Less(t, took, 2*time.Second, name)
	}
}

func TestCFGOfAnUnparsedFunction(t *testing.T) {
	f := &spirv.Function{Blocks: []*spirv.Block{{Label: 1, Targets: []spirv.ID{2, 1}, Term: spirv.Inst{Op: spirv.OpBranch}}}}
	c := spirv.NewCFG(f)
	require.Equal(t, [][]int{{0}}, c.Succs)
	require.Empty(t, spirv.NewCFG(&spirv.Function{}).RPO)
}
