package revoke

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// modelNode is the slow obvious node: closing marks it and everything below, and it is
// finished once no goroutine is inside any of those.
type modelNode struct {
	real     *Node
	parent   *modelNode
	children []*modelNode
	cause    error
	inside   int
	phases   atomic.Int32 // how many Ops functions have run
	finished bool
	urgent   bool
	cut      bool       // no goroutine is inside an urgent node of its closing, and these are quiesced
	cutDone  chan error // of a Cut of it
	rest     chan *Rest // the rest of that cut
	stepped  bool       // and it is being done
}

func (m *modelNode) each(visit func(*modelNode)) {
	visit(m)
	for _, c := range m.children {
		c.each(visit)
	}
}

// settled says whether everything below m has been left, or all urgent nodes.
func (m *modelNode) settled(all bool) bool {
	settled := true
	m.each(func(n *modelNode) { settled = settled && (n.inside == 0 || !all && !n.urgent && n != m) })
	return settled
}

// scope returns the urgent node that a goroutine inside m is inside, too.
func (m *modelNode) scope() *modelNode {
	for !m.urgent {
		m = m.parent
	}
	return m
}

// doRest does it in the smallest of steps.
func doRest(r *Rest) {
	for !r.Step(0) {
	}
}

// TestAgainstModel drives a tree and the obvious model with the same calls. Closes and cuts
// are asynchronous; the nodes that the model says are cut or finished must be, and no others.
// Nodes are used as the rule for a Cut demands: a goroutine inside a part is inside the
// urgent node above it.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root := &modelNode{real: NewRoot("root"), urgent: true}
		nodes := []*modelNode{root}
		pick := func() *modelNode { return nodes[rapid.IntRange(0, len(nodes)-1).Draw(t, "node")] }
		var closers []*modelNode // nodes that were closed themselves, in order
		owner := map[*modelNode]*modelNode{}

		settle := func() {
			for progress := true; progress; {
				progress = false
				for _, c := range closers {
					if c.cutDone != nil && !c.cut && c.settled(false) {
						ready := true // every other closing of an urgent node below is as far
						c.each(func(n *modelNode) { ready = ready && (owner[n] == c || !n.urgent || owner[n].cut || n.finished) })
						if ready {
							require.NoError(t, <-c.cutDone)
							c.each(func(n *modelNode) {
								if owner[n] == c {
									require.Equal(t, n.urgent, n.phases.Load() == 1, "quiesced by the cut")
									require.LessOrEqual(t, n.phases.Load(), int32(1))
								}
							})
							c.cut, progress = true, true
						}
					}
					if c.finished || !c.settled(true) || c.cutDone != nil && !c.stepped {
						continue
					}
					ready := true // every other closing below is finished
					c.each(func(n *modelNode) { ready = ready && (owner[n] == c || n.finished) })
					if ready {
						c.cut = true
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
			for _, c := range closers {
				if c.cutDone != nil && !c.stepped {
					c.stepped = true
					go doRest(<-c.rest)
				}
			}
			require.NoError(t, root.real.Close(nil))
		}
		defer finish() // also when a run is given up
		t.Repeat(map[string]func(*rapid.T){
			"child": func(t *rapid.T) {
				m := pick()
				c := &modelNode{parent: m, urgent: m.urgent && rapid.Bool().Draw(t, "urgent")}
				phase := func(want int32) func() {
					return func() {
						if n := c.phases.Load(); n != want || c.inside != 0 {
							panic(fmt.Sprintf("phase %d after %d, %d inside", want, n, c.inside))
						}
						for _, below := range c.children {
							if below.phases.Load() <= want && (want > 0 || below.urgent || !c.urgent) {
								panic("parent before child")
							}
						}
						c.phases.Add(1)
					}
				}
				scrubs := 0
				scrub := func() (more bool) {
					if scrubs++; scrubs < 3 {
						return true
					}
					phase(2)()
					return false
				}
				var err error
				c.real, err = m.real.NewChild("child", Ops{Urgent: c.urgent, Quiesce: phase(0), Unmap: phase(1), Scrub: scrub, Release: phase(3)})
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
					if scope := m.scope(); scope != m {
						require.NoError(t, scope.real.Enter())
						scope.inside++
					}
				}
			},
			"leave": func(t *rapid.T) {
				m := pick()
				below := 0 // those inside a part stay inside its urgent node
				m.each(func(n *modelNode) {
					if n != m && m.urgent && !n.urgent && n.scope() == m {
						below += n.inside
					}
				})
				if m.inside > below {
					m.inside--
					m.real.Leave()
				}
			},
			"rest": func(t *rapid.T) {
				for _, c := range closers {
					if c.cut && c.cutDone != nil && !c.stepped {
						c.stepped = true
						go doRest(<-c.rest)
						return
					}
				}
			},
			"close": func(t *rapid.T) {
				m := pick()
				cause := fmt.Errorf("cause %d", len(closers))
				switch {
				case !m.urgent || m == root || rapid.Bool().Draw(t, "all of it"):
					m.real.CloseAsync(cause)
				case owner[m] != nil:
				default:
					m.cutDone, m.rest = make(chan error, 1), make(chan *Rest, 1)
					go func() { m.cutDone <- m.real.Cut(cause, func(r *Rest) { m.rest <- r }) }()
					<-m.real.Done() // it refuses
				}
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
				for _, c := range closers {
					require.True(t, c.cut || len(c.cutDone) == 0, "a cut has returned with somebody inside")
				}
				for _, m := range nodes {
					require.Equal(t, m.cause, m.real.Err())
					require.Equal(t, m.cause == nil, m.real.Live())
					require.Equal(t, m.cause != nil, isClosed(m.real.Done()), "who asks late is told at once")
					require.Equal(t, m.finished, isClosed(m.real.Finished()))
					if m.finished {
						require.NoError(t, m.real.Close(nil))
						if m.parent != nil {
							require.EqualValues(t, 4, m.phases.Load())
						}
					}
				}
			},
		})
		finish()
		for _, m := range nodes[1:] {
			require.EqualValues(t, 4, m.phases.Load())
		}
	})
}
