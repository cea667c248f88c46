package revoke

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
)

const patience = 20 * time.Second

func child(t testing.TB, n *Node, name string, o Ops) *Node {
	t.Helper()
	c, err := n.NewChild(name, o)
	require.NoError(t, err)
	return c
}

func await(t testing.TB, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("%s did not happen in %v", what, patience)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// first is the head of n's list of parts.
func first(n *Node) *Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.first[part]
}

// once is a Scrub that has nothing more to do.
func once(f func()) func() bool { return func() bool { f(); return false } }

// journal notes in which order Ops functions run.
type journal struct {
	mu sync.Mutex
	// +checklocks:mu
	lines []string
}

func (j *journal) note(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

func (j *journal) read() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

func (j *journal) ops(name string) Ops {
	return Ops{
		Quiesce: func() { j.note("quiesce " + name) },
		Unmap:   func() { j.note("unmap " + name) },
		Scrub:   once(func() { j.note("scrub " + name) }),
		Release: func() { j.note("release " + name) },
	}
}

func TestPhasesRunOverTheSubtreeChildrenFirst(t *testing.T) {
	var j journal
	root := NewRoot("device")
	tenant := child(t, root, "tenant", j.ops("tenant"))
	session := child(t, tenant, "session", j.ops("session"))
	child(t, session, "buffer", j.ops("buffer"))
	other := child(t, root, "other", j.ops("other"))

	require.NoError(t, tenant.Close(nil))
	var want []string
	for _, phase := range []string{"quiesce", "unmap", "scrub", "release"} {
		for _, name := range []string{"buffer", "session", "tenant"} {
			want = append(want, phase+" "+name)
		}
	}
	require.Equal(t, want, j.read())
	require.True(t, other.Live())
	require.NoError(t, tenant.Close(errors.New("again")))
	require.NoError(t, session.Close(nil))
	require.Len(t, j.read(), len(want), "an Ops function ran twice")
}

func TestRefusalCarriesTheCause(t *testing.T) {
	root := NewRoot("device")
	session := child(t, root, "session", Ops{})
	buffer := child(t, session, "buffer", Ops{})
	require.NoError(t, buffer.Enter())
	buffer.Leave()
	require.NoError(t, buffer.Err())
	require.True(t, buffer.Live())

	cause := gpuerr.New(gpuerr.Banned, "too many faults")
	require.NoError(t, session.Close(cause))
	for _, n := range []*Node{session, buffer} {
		require.Same(t, cause, n.Enter())
		require.Same(t, cause, n.Err())
		require.False(t, n.Live())
		_, err := n.NewChild("late", Ops{Release: func() { t.Error("a refused child was dismantled") }})
		require.Same(t, cause, err)
		await(t, n.Done(), "Done")
		await(t, n.Finished(), "Finished")
	}
	require.NoError(t, root.Enter())
	root.Leave()
	require.False(t, isClosed(root.Done()))

	require.NoError(t, root.Close(nil))
	require.ErrorIs(t, root.Enter(), gpuerr.Revoked)
	require.EqualError(t, root.Err(), "E_REVOKED: device was closed")
}

// TestCloseWaitsForLeave: refusal and waking come at once, dismantling only after
// the last one has left, wherever in the subtree it is.
func TestCloseWaitsForLeave(t *testing.T) {
	for _, where := range []string{"session", "buffer"} {
		t.Run(where, func(t *testing.T) {
			session := child(t, NewRoot("device"), "session", Ops{})
			var dismantled atomic.Bool
			buffer := child(t, session, "buffer", Ops{Quiesce: func() { dismantled.Store(true) }})
			held := map[string]*Node{"session": session, "buffer": buffer}[where]
			require.NoError(t, held.Enter())
			require.NoError(t, held.Enter())
			early := buffer.Done() // made before the close, and waited on
			session.CloseAsync(nil)
			require.Error(t, buffer.Enter())
			await(t, early, "wake-up")
			held.Leave()
			require.False(t, isClosed(session.Finished()))
			require.Contains(t, held.String(), "1 inside")
			require.False(t, dismantled.Load(), "dismantled with one inside")
			require.Error(t, held.Enter())
			held.Leave()
			await(t, session.Finished(), "Finished")
			require.True(t, dismantled.Load())
			require.Contains(t, session.String(), "device/session: finished, 0 inside")
		})
	}
}

// TestCloseFromInside follows the package comment's rule for a goroutine that is inside.
func TestCloseFromInside(t *testing.T) {
	session := child(t, NewRoot("device"), "session", Ops{})
	require.NoError(t, session.Enter())
	session.CloseAsync(nil)
	require.False(t, isClosed(session.Finished()))
	session.Leave()
	await(t, session.Finished(), "Finished")
}

func TestCloseAsyncInOps(t *testing.T) {
	root := NewRoot("device")
	session := child(t, root, "session", Ops{})
	var buffer *Node
	buffer = child(t, session, "buffer", Ops{Quiesce: func() { buffer.CloseAsync(nil); session.CloseAsync(nil); root.CloseAsync(nil) }})
	require.NoError(t, session.Close(nil))
	await(t, root.Finished(), "closing of the root")
}

func TestPanicAndGoexitStopNothing(t *testing.T) {
	var j journal
	root := NewRoot("device")
	session := child(t, root, "session", j.ops("session"))
	bad := j.ops("bad")
	bad.Quiesce = func() { panic("engine on fire") }
	bad.Unmap = func() { j.note("goexit bad"); runtime.Goexit() }
	bad.Release = func() { panic(errors.New("twice")) }
	child(t, session, "bad", bad)
	child(t, session, "good", j.ops("good"))

	err := make(chan error, 1)
	session.CloseAsync(nil)
	await(t, session.Finished(), "Finished")
	go func() { err <- session.Close(nil) }()
	failure := <-err
	require.ErrorIs(t, failure, gpuerr.Internal)
	require.ErrorContains(t, failure, "quiesce of bad panicked: engine on fire")
	require.ErrorContains(t, failure, "release of bad panicked: twice")
	require.Equal(t, []string{
		"quiesce good", "quiesce session",
		"unmap good", "goexit bad", "unmap session",
		"scrub good", "scrub bad", "scrub session",
		"release good", "release session",
	}, sortWithin(j.read()))
	require.Equal(t, failure, session.Close(nil), "every caller hears the same")
	require.NoError(t, root.Close(nil))
}

// sortWithin puts "good" before "bad" where siblings are next to each other; their order is free.
func sortWithin(lines []string) []string {
	for i := 1; i < len(lines); i++ {
		a, b := lines[i-1], lines[i]
		if (b == "unmap good" && a == "goexit bad") || (b == "scrub good" && a == "scrub bad") {
			lines[i-1], lines[i] = b, a
		}
	}
	return lines
}

// TestChildClosingBeforeItsParent: the parent waits for a child that another
// closer is at, before any of its own phases.
func TestChildClosingBeforeItsParent(t *testing.T) {
	var j journal
	session := child(t, NewRoot("device"), "session", j.ops("session"))
	started, goOn := make(chan struct{}), make(chan struct{})
	ops := j.ops("buffer")
	ops.Quiesce = func() { close(started); <-goOn; j.note("quiesce buffer") }
	buffer := child(t, session, "buffer", ops)
	child(t, session, "fence", j.ops("fence"))
	mine := gpuerr.New(gpuerr.Closed, "by its owner")
	buffer.CloseAsync(mine)
	await(t, started, "quiesce of the child")
	parentClosed := make(chan error, 1)
	go func() { parentClosed <- session.Close(nil) }()
	await(t, session.Done(), "refusal of the parent")
	require.Same(t, mine, buffer.Err())
	require.Empty(t, j.read())
	close(goOn)
	require.NoError(t, <-parentClosed)
	require.Equal(t, []string{
		"quiesce buffer", "unmap buffer", "scrub buffer", "release buffer",
		"quiesce fence", "quiesce session", "unmap fence", "unmap session",
		"scrub fence", "scrub session", "release fence", "release session",
	}, j.read())
}

func TestUnlinkKeepsSiblings(t *testing.T) {
	session := NewRoot("session")
	var nodes []*Node
	released := make([]int, 5)
	for i := range released {
		nodes = append(nodes, child(t, session, fmt.Sprint(i), Ops{Release: func() { released[i]++ }}))
	}
	for _, i := range []int{2, 4, 0} { // middle, first in the list, last in the list
		require.NoError(t, nodes[i].Close(nil))
		require.Nil(t, nodes[i].next)
		require.Nil(t, nodes[i].prev)
	}
	require.Equal(t, []int{1, 0, 1, 0, 1}, released)
	require.Same(t, nodes[3], first(session))
	require.Same(t, nodes[1], nodes[3].next)
	require.NoError(t, session.Close(nil))
	require.Equal(t, []int{1, 1, 1, 1, 1}, released)
	require.Nil(t, first(session))
	require.Nil(t, nodes[3].next, "a finished node keeps its sibling from being collected")
}

func TestLeaveWithoutEnterPanics(t *testing.T) {
	n := NewRoot("device")
	require.PanicsWithValue(t, "revoke: device: Leave without Enter", n.Leave)
	m := NewRoot("device")
	require.NoError(t, m.Enter())
	m.CloseAsync(nil)
	for m.inside.Load()&waiting == 0 {
		runtime.Gosched()
	}
	m.Leave()
	await(t, m.Finished(), "Finished")
	require.Panics(t, m.Leave)
}

func TestEnterAllocatesNothing(t *testing.T) {
	buffer := child(t, child(t, NewRoot("tenant"), "session", Ops{}), "buffer", Ops{})
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if buffer.Enter() == nil {
			buffer.Leave()
		}
	}))
	require.NoError(t, buffer.Close(nil))
	require.Zero(t, testing.AllocsPerRun(1000, func() { _ = buffer.Enter() }))
}
