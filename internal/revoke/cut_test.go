package revoke

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
)

// A cut ends the urgent nodes, children first. The rest follows when it is done, and a closer
// of a node above waits for that.
func TestCutLeavesTheRest(t *testing.T) {
	var j journal
	root := NewRoot("device")
	urgently := func(name string) Ops { o := j.ops(name); o.Urgent = true; return o }
	session := child(t, root, "session", urgently("session"))
	child(t, session, "queue", urgently("queue"))
	buffer := child(t, session, "buffer", j.ops("buffer"))
	woken := buffer.Done()
	cause := gpuerr.New(gpuerr.Closed, "enough")
	var rest *Rest
	require.NoError(t, session.Cut(cause, func(r *Rest) { rest = r }))
	require.NoError(t, session.Cut(nil, func(*Rest) { t.Error("there is one rest") }))
	require.Equal(t, []string{"quiesce queue", "quiesce session"}, j.read())
	require.Same(t, cause, buffer.Enter())
	require.True(t, isClosed(session.Done()))
	require.False(t, isClosed(woken), "a part that was asked before is woken later")
	require.False(t, buffer.ClosedByParent(), "not yet")
	above := make(chan error, 1)
	go func() { above <- root.Close(nil) }()
	await(t, root.Done(), "closing of the root")
	require.Empty(t, above)
	for !rest.Step(0) {
	}
	require.NoError(t, <-above)
	require.True(t, isClosed(woken))
	require.True(t, buffer.ClosedByParent())
	require.Equal(t, []string{
		"quiesce queue", "quiesce session", "quiesce buffer",
		"unmap buffer", "unmap queue", "unmap session",
		"scrub buffer", "scrub queue", "scrub session",
		"release buffer", "release queue", "release session",
	}, j.read())
}

// A cut waits for those inside, and a second one for the first.
func TestCutWaitsForLeave(t *testing.T) {
	session := child(t, NewRoot("device"), "session", Ops{Urgent: true})
	queue := child(t, session, "queue", Ops{Urgent: true})
	for _, held := range []*Node{session, queue} {
		require.NoError(t, held.Enter())
	}
	rests, cuts := make(chan *Rest, 2), make(chan error, 2)
	for range 2 {
		go func() { cuts <- session.Cut(nil, func(r *Rest) { rests <- r }) }()
	}
	await(t, queue.Done(), "wake-up")
	session.Leave()
	require.Error(t, queue.Enter())
	require.Empty(t, cuts)
	queue.Leave()
	require.NoError(t, <-cuts)
	require.NoError(t, <-cuts)
	require.Len(t, rests, 1)
	require.True(t, (<-rests).Step(patience))
}

// A cut that meets the closing of a node below waits only until that has ended the urgent
// nodes; the rest of the cut waits for all.
func TestCutBesideAnother(t *testing.T) {
	session := child(t, NewRoot("device"), "session", Ops{Urgent: true})
	below := child(t, session, "restricted", Ops{Urgent: true})
	released := false
	child(t, below, "buffer", Ops{Release: func() { released = true }})
	var first, second *Rest
	require.NoError(t, below.Cut(nil, func(r *Rest) { first = r }))
	require.NoError(t, session.Cut(nil, func(r *Rest) { second = r }))
	done := make(chan struct{})
	go func() { defer close(done); doRest(second) }()
	runtime.Gosched()
	require.False(t, isClosed(session.Finished()))
	require.False(t, released)
	doRest(first)
	await(t, done, "the rest of the one above")
	require.True(t, released)
}

// A cut waits for another closer to end the urgent nodes below.
func TestCutWaitsForAnotherQuiesce(t *testing.T) {
	session := child(t, NewRoot("device"), "session", Ops{Urgent: true})
	started, goOn := make(chan struct{}), make(chan struct{})
	queue := child(t, session, "queue", Ops{Urgent: true, Quiesce: func() { close(started); <-goOn }})
	queue.CloseAsync(nil)
	<-started
	quiesced := false
	cut := make(chan *Rest, 1)
	session.ops.Quiesce = func() { quiesced = isClosed(goOn) }
	go func() { _ = session.Cut(nil, func(r *Rest) { cut <- r }) }()
	await(t, session.Done(), "refusal")
	for range 100 {
		runtime.Gosched()
	}
	require.Empty(t, cut)
	close(goOn)
	doRest(<-cut)
	require.True(t, quiesced, "before what is below it")
}

// The rest waits for a goroutine that is inside a part against the rule.
func TestRestWaitsForLeave(t *testing.T) {
	session := child(t, NewRoot("device"), "session", Ops{Urgent: true})
	inside := true
	buffer := child(t, session, "buffer", Ops{Quiesce: func() { require.False(t, inside) }})
	require.NoError(t, buffer.Enter())
	rests := make(chan *Rest, 1)
	require.NoError(t, session.Cut(nil, func(r *Rest) { rests <- r }))
	done, rest := make(chan struct{}), <-rests
	go func() { defer close(done); doRest(rest) }()
	await(t, buffer.Done(), "wake-up")
	for buffer.inside.Load()&waiting == 0 {
		runtime.Gosched()
	}
	inside = false
	buffer.Leave()
	await(t, done, "the rest")
	require.NoError(t, rest.Err())
}

// The cut reports panics, and they stop nothing.
func TestPanicAndGoexitInCut(t *testing.T) {
	for name, wrong := range map[string]func(){"panic": func() { panic("on fire") }, "goexit": runtime.Goexit} {
		session := child(t, NewRoot("device"), "session", Ops{Urgent: true})
		quiesced := 0
		child(t, session, "queue", Ops{Urgent: true, Quiesce: func() { quiesced++ }})
		child(t, session, "queue", Ops{Urgent: true, Quiesce: wrong, Release: func() { panic("twice") }})
		child(t, session, "queue", Ops{Urgent: true, Quiesce: func() { quiesced++ }})
		rests := make(chan *Rest, 1)
		go func() { _ = session.Cut(nil, func(r *Rest) { rests <- r }) }()
		rest := <-rests
		err := session.Cut(nil, nil)
		require.Equal(t, 2, quiesced, name)
		require.Equal(t, name == "panic", err != nil, "%v", err)
		doRest(rest)
		require.ErrorContains(t, rest.Err(), "release of queue panicked: twice")
		require.ErrorIs(t, session.Close(nil), gpuerr.Internal)
	}
}

// A part has no urgent node below it: no cut would find that.
func TestUrgentBelowAPart(t *testing.T) {
	buffer := child(t, NewRoot("device"), "buffer", Ops{})
	require.Panics(t, func() { _, _ = buffer.NewChild("queue", Ops{Urgent: true}) })
}

// A closer that looks twice whether a goroutine is inside does not wait for one that is being
// refused: such a goroutine would not wake it.
func TestDrainedTwice(t *testing.T) {
	for _, held := range []bool{true, false} {
		n := child(t, NewRoot("device"), "buffer", Ops{})
		require.NoError(t, n.Enter())
		require.True(t, n.claim(newClosure(n, nil)))
		var first <-chan struct{}
		if held {
			first = n.draining()
			require.NotNil(t, first)
		}
		n.Leave()
		n.inside.Add(1) // as the first instruction of Enter
		second := n.draining()
		n.Leave()
		for _, drained := range []<-chan struct{}{first, second} {
			require.True(t, drained == nil || isClosed(drained))
		}
		n.drain()
	}
}
