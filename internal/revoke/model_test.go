package revoke

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// modelNode is the slow obvious node: closing marks it and everything below,
// and it is finished once nobody is inside any of those.
type modelNode struct {
	real     *Node
	parent   *modelNode
	children []*modelNode
	cause    error
	inside   int
	phases   int // how many Ops functions have run
	finished bool
}

func (m *modelNode) each(visit func(*modelNode)) {
	visit(m)
	for _, c := range m.children {
		c.each(visit)
	}
}

// settled says whether everything below m has been left.
func (m *modelNode) settled() bool {
	settled := true
	m.each(func(n *modelNode) { settled = settled && n.inside == 0 })
	return settled
}

// TestAgainstModel drives a tree and the obvious model with the same calls. Closes
// are asynchronous; whatever the model says is finished must finish, and nothing
// else may.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root := &modelNode{real: NewRoot("root")}
		nodes := []*modelNode{root}
		pick := func() *modelNode { return nodes[rapid.IntRange(0, len(nodes)-1).Draw(t, "node")] }
		var closers []*modelNode // nodes that were closed themselves, in order
		owner := map[*modelNode]*modelNode{}

		settle := func() {
			for progress := true; progress; {
				progress = false
				for _, c := range closers {
					if c.finished || !c.settled() {
						continue
					}
					ready := true // every other closing below is finished
					c.each(func(n *modelNode) { ready = ready && (owner[n] == c || n.finished) })
					if ready {
						<-c.real.Finished()
						c.each(func(n *modelNode) { n.finished = true })
						progress = true
					}
				}
			}
		}
		finish := func() {
			for _, m := range nodes {
				for m.inside > 0 {
					m.inside--
					m.real.Leave()
				}
			}
			require.NoError(t, root.real.Close(nil))
		}
		defer finish() // also when a run is given up
		t.Repeat(map[string]func(*rapid.T){
			"child": func(t *rapid.T) {
				m := pick()
				c := &modelNode{parent: m}
				phase := func(want int) func() {
					return func() {
						if c.phases != want || c.inside != 0 {
							panic(fmt.Sprintf("phase %d after %d, %d inside", want, c.phases, c.inside))
						}
						for _, below := range c.children {
							if below.phases <= want {
								panic("parent before child")
							}
						}
						c.phases++
					}
				}
				var err error
				c.real, err = m.real.NewChild("child", Ops{Quiesce: phase(0), Unmap: phase(1), Scrub: once(phase(2)), Release: phase(3)})
				require.Equal(t, m.cause, err)
				if err == nil {
					m.children = append(m.children, c)
					nodes = append(nodes, c)
				}
			},
			"enter": func(t *rapid.T) {
				m := pick()
				require.Equal(t, m.cause, m.real.Enter())
				if m.cause == nil {
					m.inside++
				}
			},
			"leave": func(t *rapid.T) {
				if m := pick(); m.inside > 0 {
					m.inside--
					m.real.Leave()
				}
			},
			"close": func(t *rapid.T) {
				m := pick()
				cause := fmt.Errorf("cause %d", len(closers))
				m.real.CloseAsync(cause)
				if owner[m] != nil {
					return
				}
				closers = append(closers, m)
				m.each(func(n *modelNode) {
					if n.cause == nil {
						n.cause = cause
						owner[n] = m
					}
				})
			},
			"": func(t *rapid.T) {
				settle()
				for _, m := range nodes {
					require.Equal(t, m.cause, m.real.Err())
					require.Equal(t, m.cause == nil, m.real.Live())
					require.Equal(t, m.cause != nil, isClosed(m.real.Done()))
					require.Equal(t, m.finished, isClosed(m.real.Finished()))
					if m.finished {
						require.NoError(t, m.real.Close(nil))
						if m.parent != nil {
							require.Equal(t, 4, m.phases)
						}
					}
				}
			},
		})
		finish()
		for _, m := range nodes[1:] {
			require.Equal(t, 4, m.phases)
		}
	})
}
