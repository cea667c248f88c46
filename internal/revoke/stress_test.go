package revoke

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestManyChildrenDoNotHoldUpOthers: a session with 100,000 children refuses at
// once, and while its dismantling is stopped in each phase in turn, another
// session of the same tenant is used as if nothing happened.
func TestManyChildrenDoNotHoldUpOthers(t *testing.T) {
	const count = 100_000
	tenant := child(t, NewRoot("device"), "tenant", Ops{})
	crowded := child(t, tenant, "crowded", Ops{})
	reached := make(chan string)
	goOn := make(chan struct{})
	stop := func(phase string) func() { return func() { reached <- phase; <-goOn } }
	var released atomic.Int64
	children := make([]*Node, count)
	for i := range children {
		o := Ops{Release: func() { released.Add(1) }}
		if i == count/2 {
			o = Ops{Quiesce: stop("quiesce"), Unmap: stop("unmap"), Scrub: once(stop("scrub")), Release: stop("release")}
		}
		children[i] = child(t, crowded, "buffer", o)
	}
	first, last := children[0].Done(), children[count-1].Done()
	quiet := child(t, tenant, "quiet", Ops{})

	result := make(chan error, 1)
	go func() { result <- crowded.Close(nil) }()
	for _, phase := range []string{"quiesce", "unmap", "scrub", "release"} {
		require.Equal(t, phase, <-reached)
		for _, n := range []*Node{crowded, children[0], children[count-1]} {
			require.Error(t, n.Enter())
			_, err := n.NewChild("late", Ops{})
			require.Error(t, err)
		}
		require.True(t, isClosed(first) && isClosed(last))
		require.False(t, isClosed(crowded.Finished()))

		// The neighbours, and the tenant they share.
		for range 100 {
			buffer := child(t, quiet, "buffer", Ops{})
			session := child(t, tenant, "session", Ops{})
			child(t, session, "fence", Ops{})
			require.NoError(t, buffer.Enter())
			buffer.Leave()
			require.NoError(t, tenant.Enter())
			tenant.Leave()
			require.NoError(t, buffer.Close(nil))
			require.NoError(t, session.Close(nil))
		}
		goOn <- struct{}{}
	}
	require.NoError(t, <-result)
	require.EqualValues(t, count-1, released.Load())
	require.True(t, quiet.Live())
}

// TestCutTakesFewSteps: a cut goes to the urgent nodes and to no part, however many
// there are, and then the rest is done in short steps.
func TestCutTakesFewSteps(t *testing.T) {
	steps := map[int]int{}
	for _, count := range []int{0, 100, 100_000} {
		session := child(t, NewRoot("device"), "session", Ops{Urgent: true})
		below := child(t, session, "restricted", Ops{Urgent: true})
		var ended, dismantled atomic.Int64
		for range 3 {
			child(t, below, "queue", Ops{Urgent: true, Quiesce: func() { ended.Add(1) }})
		}
		var some *Node
		for range count {
			some = child(t, below, "buffer", Ops{Quiesce: func() { dismantled.Add(1) }})
		}
		var rest *Rest
		require.NoError(t, session.Cut(nil, func(r *Rest) { rest = r }))
		steps[count] = rest.visits
		require.EqualValues(t, 3, ended.Load())
		require.Zero(t, dismantled.Load())
		if count > 0 {
			require.Error(t, some.Enter())
			require.Nil(t, some.closing.Load(), "a cut has gone to a part")
		}
		slices := 1
		for !rest.Step(0) {
			slices++
		}
		require.Greater(t, slices, count/64)
		require.EqualValues(t, count, dismantled.Load())
		require.True(t, isClosed(session.Finished()))
		require.NoError(t, rest.Err())
	}
	require.Equal(t, 9, steps[0], "4 taken off a list, 5 quiesced")
	require.Equal(t, steps[0], steps[100])
	require.Equal(t, steps[0], steps[100_000])
}

// object is the state that a node guards, which must not be used after quiesce.
type object struct {
	node  *Node
	phase atomic.Int32 // 0 live, then 1 to 4
}

func (o *object) ops(t *testing.T, released *atomic.Int64) Ops {
	step := func(to int32) func() {
		return func() {
			if !o.phase.CompareAndSwap(to-1, to) {
				t.Errorf("phase %d ran after phase %d", to, o.phase.Load())
			}
			if to == 4 {
				released.Add(1)
			}
		}
	}
	return Ops{Quiesce: step(1), Unmap: step(2), Scrub: once(step(3)), Release: step(4)}
}

// TestNoUseAfterClose races millions of uses, at each level, with closings at each
// level: no use overlaps the dismantling, none begins once Close has returned or
// once another use was refused, and every object that was made is dismantled
// exactly once.
func TestNoUseAfterClose(t *testing.T) {
	total := int64(3_000_000)
	if testing.Short() {
		total = 200_000
	}
	var uses, refusals, made, released atomic.Int64
	root := NewRoot("device")
	for round := 0; uses.Load()+refusals.Load() < total; round++ {
		tenant := child(t, root, "tenant", Ops{Urgent: true})
		session := child(t, tenant, "session", Ops{Urgent: true})
		objects := make([]*object, 4)
		for i := range objects {
			o := &object{}
			o.node = child(t, session, fmt.Sprint(i), o.ops(t, &released))
			objects[i] = o
			made.Add(1)
		}
		var wg sync.WaitGroup
		var closeReturned atomic.Bool
		for w := range 4 {
			wg.Go(func() {
				refused := 0
				for i := 0; refused < 50; i++ {
					o := objects[(w+i)%len(objects)]
					after := closeReturned.Load()
					if session.Enter() != nil { // as the rule for a Cut demands
						refused++
						refusals.Add(1)
						continue
					}
					if err := o.node.Enter(); err != nil {
						session.Leave()
						refused++
						refusals.Add(1)
						if o.node.Live() {
							t.Error("live after a refusal")
						}
						continue
					}
					if after {
						t.Error("entered after Close had returned")
					}
					if o.phase.Load() != 0 {
						t.Error("use overlaps dismantling")
					}
					uses.Add(1)
					if i%64 == 0 {
						runtime.Gosched()
					}
					if o.phase.Load() != 0 {
						t.Error("dismantled while in use")
					}
					o.node.Leave()
					session.Leave()
				}
			})
		}
		wg.Go(func() { // makes children until it is refused
			for i := 0; ; i++ {
				o := &object{}
				n, err := session.NewChild("late", o.ops(t, &released))
				if err != nil {
					return
				}
				made.Add(1)
				if i%3 == 0 {
					if err := n.Close(nil); err != nil {
						t.Error(err)
					}
				}
				runtime.Gosched()
			}
		})
		for range round % 500 {
			runtime.Gosched()
		}
		closer := []*Node{session, tenant}[round%2]
		wg.Go(func() { _ = objects[0].node.Close(nil) })
		if round%3 == 0 {
			wg.Go(func() { _ = session.Close(nil) })
		}
		if round%4 < 2 {
			require.NoError(t, closer.Close(nil))
		} else {
			cut := func() { _ = closer.Cut(nil, func(r *Rest) { wg.Go(func() { doRest(r) }) }) }
			wg.Go(cut)
			cut()
		}
		closeReturned.Store(true)
		require.NoError(t, tenant.Close(nil))
		wg.Wait()
		require.Equal(t, made.Load(), released.Load(), "round %d leaked or dismantled twice", round)
	}
	t.Logf("%d uses, %d refusals, %d objects", uses.Load(), refusals.Load(), made.Load())
	require.Nil(t, first(root))
}
