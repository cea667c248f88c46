package engine_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/engine"
	"capgpu/gpu/backend/engine/enginetest"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/program/instrument"
)

const patience = 20 * time.Second

var (
	deviceError = outcome.Outcome{Kind: outcome.Failed, Cause: outcome.DeviceError}
	cancelled   = outcome.Outcome{Kind: outcome.Cancelled}
)

// ends is a sink that keeps what it is told.
type ends struct {
	t    testing.TB
	mu   sync.Mutex
	all  map[backend.JobID][]outcome.Outcome
	gone string
	lost []uint32
	more chan struct{} // closed and renewed at each change
}

func newEnds(t testing.TB) *ends {
	return &ends{t: t, all: map[backend.JobID][]outcome.Outcome{}, more: make(chan struct{})}
}

func (e *ends) tell(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
	close(e.more)
	e.more = make(chan struct{})
}

func (e *ends) Complete(c backend.Completion) {
	e.tell(func() { e.all[c.ID] = append(e.all[c.ID], c.Outcome) })
}
func (e *ends) DeviceGone(why string)            { e.tell(func() { e.gone = why }) }
func (e *ends) LocalLost(group uint32, _ string) { e.tell(func() { e.lost = append(e.lost, group) }) }

// await waits until something is so.
func (e *ends) await(is func() bool) {
	e.t.Helper()
	for until := time.After(patience); ; {
		e.mu.Lock()
		ok, more := is(), e.more
		e.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-more:
		case <-until:
			require.FailNow(e.t, "nothing more is told")
		}
	}
}

// of is how a job ended.
func (e *ends) of(id backend.JobID) (how outcome.Outcome) {
	e.t.Helper()
	e.await(func() bool { return len(e.all[id]) > 0 })
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.all[id][0]
}

// once requires that no job ended twice.
func (e *ends) once() {
	e.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, all := range e.all {
		require.Len(e.t, all, 1, "ends of job %d", id)
	}
}

// scene is a backend on scripted engines. The engine with number 1 is of group 1 and plays; all
// others are honest.
type scene struct {
	*enginetest.Mapping
	ends *ends
	s    *enginetest.Scripted
	mem  backend.Span
	last backend.JobID
}

func newScene(t testing.TB, runs func(o *wire.Order, entries []wire.Entry) [][]byte) *scene {
	t.Helper()
	x := &scene{ends: newEnds(t), s: &enginetest.Scripted{}}
	x.s.Runs = func(n int, _ uint32, o *wire.Order, entries []wire.Entry) [][]byte {
		if n != 1 {
			return enginetest.Honest(o, entries)
		}
		return runs(o, entries)
	}
	x.Mapping = enginetest.NewMapping(t, x.s, engine.Options{AnswerBound: patience})
	require.NoError(t, x.Start(x.ends))
	t.Cleanup(func() {
		require.NoError(t, x.Close())
		x.ends.once()
		x.s.Over(t)
	})
	x.mem = x.Alloc(t, 4096)
	return x
}

// job is a fill, or a launch of a program with a binding, of a group.
func (x *scene) job(c *backend.Context, p backend.Program) *backend.Job {
	x.last++
	j := &backend.Job{ID: x.last, Op: backend.OpFill, Spans: []backend.Span{x.mem}, Context: c, Round: 1}
	if p != nil {
		j.Op, j.Program, j.Grid, j.Block = backend.OpLaunch, p, backend.Dim3{X: 1, Y: 1, Z: 1}, p.Info().Block
		j.Inline = make([]byte, p.Info().InlineBytes)
	}
	return j
}

// TestLies: the word of an engine that cannot be is its end. The job that it had is a device
// error, what others have is not touched, and the group's next engine works.
func TestLies(t *testing.T) {
	answer := func(a wire.Answer) [][]byte { return [][]byte{wire.AppendAnswer(nil, &a)} }
	slot := func(words ...uint32) (s [wire.SlotBytes]byte) {
		for i, w := range words {
			binary.LittleEndian.PutUint32(s[4*i:], w)
		}
		return s
	}
	type run = func(o *wire.Order, entries []wire.Entry) [][]byte
	result := func(r wire.Result) run {
		return func(o *wire.Order, _ []wire.Entry) [][]byte {
			return answer(wire.Answer{Kind: o.Kind, Seq: o.Seq, Result: &r})
		}
	}
	raw := func(b []byte) run { return func(*wire.Order, []wire.Entry) [][]byte { return [][]byte{b} } }
	for name, c := range map[string]struct {
		run    run
		launch bool
	}{
		"an answer to nothing": {run: func(o *wire.Order, _ []wire.Entry) [][]byte {
			return answer(wire.Answer{Kind: wire.Free, Seq: 1 << 20})
		}},
		"another run": {run: func(o *wire.Order, _ []wire.Entry) [][]byte {
			return answer(wire.Answer{Kind: o.Kind, Seq: o.Seq + 1, Result: &wire.Result{Begun: 1}})
		}},
		"a run of a list": {run: func(o *wire.Order, _ []wire.Entry) [][]byte {
			return answer(wire.Answer{Kind: wire.Run, Seq: o.Seq, Result: &wire.Result{Begun: 1}})
		}},
		"an answer as to another order": {run: func(o *wire.Order, _ []wire.Entry) [][]byte {
			return answer(wire.Answer{Kind: wire.Record, Seq: o.Seq})
		}},
		"too many entries":           {run: result(wire.Result{Begun: 2})},
		"skipped behind nothing":     {run: result(wire.Result{Skipped: true})},
		"a fill ends early":          {run: result(wire.Result{Begun: 1, Early: true, Slot: slot(5)})},
		"a launch ends early unsaid": {run: result(wire.Result{Begun: 1, Early: true}), launch: true},
		"no such place":              {run: result(wire.Result{Begun: 1, Early: true, Slot: slot(1 << 31)}), launch: true},
		"no such workgroup":          {run: result(wire.Result{Begun: 1, Early: true, Slot: slot(3, 0, 7)}), launch: true},
		"stopped by nobody":          {run: result(wire.Result{Begun: 1, Early: true, Slot: slot(1)}), launch: true},
		"rubbish":                    {run: raw([]byte("rubbish"))},
		"too long":                   {run: raw(make([]byte, wire.MaxDatagramBytes+1))},
		"memory that did not come":   {run: raw([]byte{255, 0, 0, 1, 0})},
		"no code": {run: func(o *wire.Order, _ []wire.Entry) [][]byte {
			return [][]byte{append(wire.AppendAnswer(nil, &wire.Answer{Kind: o.Kind, Seq: o.Seq, Code: gpuerr.Quota})[:5], 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0)}
		}},
		"lost": {run: func(o *wire.Order, _ []wire.Entry) [][]byte {
			return answer(wire.Answer{Kind: o.Kind, Seq: o.Seq, Code: gpuerr.Internal, Lost: true, Text: "gone"})
		}},
		"left": {run: raw(nil)}, // an empty datagram is the end
	} {
		t.Run(name, func(t *testing.T) {
			x := newScene(t, c.run)
			var p backend.Program
			if c.launch {
				var err error
				p, err = x.Builtin("trap")
				require.NoError(t, err)
			}
			guilty, other := &backend.Context{Group: 1}, &backend.Context{Group: 2}
			a, b, z := x.job(guilty, p), x.job(guilty, nil), x.job(other, nil)
			for _, j := range []*backend.Job{a, b, z} {
				require.NoError(t, x.Submit(j))
			}
			require.Equal(t, deviceError, x.ends.of(a.ID))
			// It is of the round that failed; a liar may have had it, too.
			require.Contains(t, []outcome.Outcome{cancelled, deviceError}, x.ends.of(b.ID))
			require.Equal(t, outcome.Success, x.ends.of(z.ID))
			next := x.job(guilty, nil)
			next.Round = 2
			require.NoError(t, x.Submit(next))
			require.Equal(t, outcome.Success, x.ends.of(next.ID))
			require.Equal(t, []uint32{1}, x.s.Kills())
			require.True(t, guilty.Over(1))
			require.False(t, guilty.Over(2))
			require.False(t, other.Over(1))
		})
	}
}

// A second end of a run is the engine's end, and nobody's job.
func TestToldTwice(t *testing.T) {
	x := newScene(t, func(o *wire.Order, entries []wire.Entry) [][]byte {
		honest := enginetest.Honest(o, entries)
		return append(honest, honest...)
	})
	c := &backend.Context{Group: 1}
	a := x.job(c, nil)
	require.NoError(t, x.Submit(a))
	require.Equal(t, outcome.Success, x.ends.of(a.ID))
	for len(x.s.Kills()) == 0 {
		b := x.job(c, nil)
		require.NoError(t, x.Submit(b))
		require.Contains(t, []outcome.Outcome{outcome.Success, deviceError}, x.ends.of(b.ID))
		c = &backend.Context{Group: 1}
	}
	b := x.job(c, nil)
	require.NoError(t, x.Submit(b))
	require.Equal(t, outcome.Success, x.ends.of(b.ID))
}

// An engine that says nothing is killed by a reset of its context, or by that of the device;
// nobody else's is.
func TestSilentEngine(t *testing.T) {
	for name, reset := range map[string]func(x *scene, c *backend.Context) error{
		"context": func(x *scene, c *backend.Context) error { return x.ResetContext(context(), c) },
		"device":  func(x *scene, _ *backend.Context) error { return x.Reset(context()) },
	} {
		t.Run(name, func(t *testing.T) {
			x := newScene(t, func(*wire.Order, []wire.Entry) [][]byte { return nil })
			c, other := &backend.Context{Group: 1}, &backend.Context{Group: 2}
			z := x.job(other, nil)
			a, b := x.job(c, nil), x.job(c, nil)
			require.NoError(t, x.Submit(a))
			require.NoError(t, x.Submit(b))
			require.NoError(t, reset(x, c))
			require.NoError(t, x.Submit(z))
			require.Equal(t, outcome.Success, x.ends.of(z.ID))
			require.Equal(t, []uint32{1}, x.s.Kills())
			next := x.job(c, nil)
			require.NoError(t, x.Submit(next))
			require.Equal(t, outcome.Success, x.ends.of(next.ID))
			require.Len(t, x.ends.all, 2, "of what was reset away nothing is told")
		})
	}
}

// An engine that cannot be killed is the end of the device: it may still touch memory.
func TestKillFails(t *testing.T) {
	x := newScene(t, func(*wire.Order, []wire.Entry) [][]byte { return nil })
	c := &backend.Context{Group: 1}
	require.NoError(t, x.Submit(x.job(c, nil)))
	x.s.KillError = errors.New("it does not die")
	require.ErrorContains(t, x.ResetContext(context(), c), "does not die")
	x.ends.await(func() bool { return x.ends.gone != "" })
	require.ErrorIs(t, x.Submit(x.job(c, nil)), gpuerr.DeviceLost)
	require.ErrorIs(t, x.Reset(context()), gpuerr.DeviceLost)
	require.Empty(t, x.ends.all)
	x.Stuck = true
}

// FuzzAnswers: whatever an engine sends, each job ends once, an ok is told only of a run that
// the engine said was done, and others do not notice.
func FuzzAnswers(f *testing.F) {
	honest := wire.AppendAnswer(nil, &wire.Answer{Kind: wire.RunOnce, Seq: 3, Result: &wire.Result{Begun: 1}})
	var slot [wire.SlotBytes]byte
	binary.LittleEndian.PutUint32(slot[instrument.SiteOff:], 3)
	trap := wire.AppendAnswer(nil, &wire.Answer{Kind: wire.RunOnce, Seq: 4, Result: &wire.Result{Begun: 1, Early: true, Slot: slot}})
	skipped := wire.AppendAnswer(nil, &wire.Answer{Kind: wire.RunOnce, Seq: 4, Result: &wire.Result{Skipped: true}})
	for _, seed := range [][][]byte{{honest}, {honest, honest}, {trap}, {trap, skipped}, {skipped}, {[]byte("rubbish")}} {
		f.Add(bytes.Join(seed, []byte{'|', '|'}))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		datagrams := bytes.Split(b, []byte{'|', '|'})
		told := false
		x := newScene(t, func(o *wire.Order, entries []wire.Entry) [][]byte {
			if told {
				return nil
			}
			told = true
			for i, d := range datagrams { // the numbers of the run, so that some are believed
				if len(d) > 5 && d[4] == 0 {
					d = bytes.Clone(d)
					binary.LittleEndian.PutUint32(d[1:], o.Seq+uint32(d[1]&1))
					datagrams[i] = d
				}
			}
			return datagrams
		})
		p, err := x.Builtin("trap")
		require.NoError(t, err)
		guilty, other := &backend.Context{Group: 1}, &backend.Context{Group: 2}
		a, z := x.job(guilty, p), x.job(other, nil)
		require.NoError(t, x.Submit(a))
		require.NoError(t, x.ResetContext(context(), guilty))
		require.NoError(t, x.Submit(z))
		require.Equal(t, outcome.Success, x.ends.of(z.ID))
		x.ends.once()
	})
}

// An engine that is at something else for a while loses no order, and no descriptor.
func TestBacklog(t *testing.T) {
	goOn := make(chan struct{})
	x := newScene(t, func(o *wire.Order, entries []wire.Entry) [][]byte {
		<-goOn
		return enginetest.Honest(o, entries)
	})
	c := &backend.Context{Group: 1}
	a := x.job(c, nil)
	require.NoError(t, x.Submit(a))

	const maps = 400 // a socket takes some 280 small datagrams
	var wg sync.WaitGroup
	var begun sync.WaitGroup
	for range maps {
		s := x.Alloc(t, 4096)
		begun.Add(1)
		wg.Go(func() {
			begun.Done()
			if err := x.Ensure(c, s); err != nil {
				t.Error(err)
			}
		})
	}
	begun.Wait()
	close(goOn)
	wg.Wait()
	require.Equal(t, outcome.Success, x.ends.of(a.ID))
	require.Empty(t, x.s.Kills())
}
