package gpu

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"capgpu/ddf/fake"
	"capgpu/gpu/backend"
	"capgpu/gpu/handles"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

// scriptedBackend ends each fill as its pattern says, within Submit.
type scriptedBackend struct{ *handBackend }

var scripted = map[uint32]outcome.Outcome{
	1: outcome.Success,
	2: errorOutcome,
	3: {Kind: outcome.Failed, Cause: outcome.TrapCause, Trap: outcome.Trap{Kind: outcome.Misaligned, Offset: 4}},
}

func (b *scriptedBackend) Submit(j *backend.Job) error {
	how := scripted[j.Pattern]
	switch {
	case j.Context.Over(j.Round):
		how = cancelledOutcome
	case how.Cause == outcome.TrapCause:
		j.Context.Trap()
	case how.Kind != outcome.OK:
		j.Context.Fail(j.Round)
	}
	b.sink.Complete(backend.Completion{ID: j.ID, Outcome: how, DeviceTime: time.Microsecond})
	return nil
}

// modelSession is the obvious session: maps, and every rule spelled out.
type modelSession struct {
	real     *Session
	parent   *modelSession
	children []*modelSession
	limit    [ledger.NumClasses]uint64
	buffers  map[Handle]uint64
	fences   map[Handle]*modelFence
	programs map[Handle]bool
	queue    *client
	closed   bool
	stale    []Handle // handles of what was closed

	group    outcome.Outcome
	skipping bool
	trapped  bool
}

type modelFence struct {
	initial  uint64
	reached  uint64
	outcomes map[uint64]outcome.Outcome
}

func (f *modelFence) at(v uint64) outcome.Outcome {
	if v <= f.initial {
		return outcome.Success
	}
	best := uint64(0)
	for p := range f.outcomes {
		if p >= v && (best == 0 || p < best) {
			best = p
		}
	}
	return f.outcomes[best]
}

// own is what the session itself is charged for, without its children.
func (m *modelSession) own(c ledger.Class) uint64 {
	bytes := uint64(0)
	for _, n := range m.buffers {
		bytes += n
	}
	switch c {
	case ledger.Buffers, ledger.IOVAEntries:
		return uint64(len(m.buffers))
	case ledger.DeviceMemory:
		return bytes
	case ledger.Fences:
		return uint64(len(m.fences))
	case ledger.Programs:
		return uint64(len(m.programs))
	case ledger.QueueSlots:
		if m.queue != nil {
			return minQueueCharge
		}
	}
	return 0
}

func (m *modelSession) used(c ledger.Class) uint64 {
	n := m.own(c)
	for _, child := range m.children {
		n += child.used(c)
		if c == ledger.Sessions {
			n++
		}
	}
	return n
}

// room is what could still be charged.
func (m *modelSession) room(c ledger.Class) uint64 {
	least := m.limit[c] - min(m.used(c), m.limit[c])
	if m.parent != nil {
		least = min(least, m.parent.room(c))
	}
	return least
}

func (m *modelSession) shut() {
	for _, child := range m.children {
		child.shut()
	}
	m.closed, m.children, m.buffers, m.fences, m.programs, m.queue = true, nil, nil, nil, nil, nil
}

// machine is the state machine: one device, some sessions.
type machine struct {
	t        *rapid.T
	r        *rig
	sessions []*modelSession
	behind   bool // a session was closed that may not be reclaimed yet
}

func (x *machine) pick() *modelSession { return rapid.SampledFrom(x.sessions).Draw(x.t, "session") }

// handleOf draws a handle: mostly one of these, sometimes a bad one.
func handleOf[V any](x *machine, m *modelSession, from map[Handle]V) (Handle, bool) {
	var good []Handle
	for h := range from {
		good = append(good, h)
	}
	// Maps have no order; rapid wants one.
	for i := range good {
		for j := i; j > 0 && good[j]&0xffffffff < good[j-1]&0xffffffff; j-- {
			good[j], good[j-1] = good[j-1], good[j]
		}
	}
	bad := append([]Handle{1, 1 << 60}, m.stale...)
	if n := len(good); n > 0 && rapid.IntRange(0, 9).Draw(x.t, "good") > 0 {
		return good[rapid.IntRange(0, n-1).Draw(x.t, "which")], true
	}
	return bad[rapid.IntRange(0, len(bad)-1).Draw(x.t, "stale")], false
}

// made is expect for calls that make or queue work.
func (x *machine) made(m *modelSession, err error, class ledger.Class, n uint64, known bool) bool {
	if m.trapped && !m.closed {
		require.ErrorIs(x.t, err, gpuerr.Poisoned)
		require.ErrorContains(x.t, err, "misaligned")
		return false
	}
	return x.expect(m, err, class, n, known)
}

// expect compares an error with what the model says.
func (x *machine) expect(m *modelSession, err error, class ledger.Class, n uint64, known bool) bool {
	switch {
	case m.closed:
		require.ErrorIs(x.t, err, gpuerr.Closed)
	case !known:
		require.ErrorIs(x.t, err, gpuerr.Stale)
	case n > 0 && m.room(class) < n:
		require.ErrorIs(x.t, err, gpuerr.Quota)
		require.Equal(x.t, class.String(), gpuerr.From(err).Resource)
		require.Equal(x.t, m.room(class), gpuerr.From(err).Available)
	default:
		require.NoError(x.t, err)
		return true
	}
	return false
}

func (x *machine) createBuffer(*rapid.T) {
	m := x.pick()
	bytes := rapid.Uint64Range(1, 40000).Draw(x.t, "bytes")
	size := (bytes + 4095) / 4096 * 4096
	if m.room(ledger.Buffers) == 0 || m.room(ledger.IOVAEntries) == 0 {
		bytes, size = 1, 4096 // then it is that which is refused
	}
	info, err := m.real.CreateBuffer(context.Background(), bytes, 0)
	class, n := ledger.DeviceMemory, size
	if m.room(ledger.Buffers) == 0 {
		class, n = ledger.Buffers, 1
	}
	if x.made(m, err, class, n, true) {
		require.Equal(x.t, size, info.MemLen)
		require.Equal(x.t, -1, firstNonZero(host(x.t, m.real, info.Handle)))
		host(x.t, m.real, info.Handle)[0] = 0xFF
		m.buffers[info.Handle] = size
	}
}

func (x *machine) destroyBuffer(*rapid.T) {
	m := x.pick()
	h, known := handleOf(x, m, m.buffers)
	if x.expect(m, m.real.DestroyBuffer(h), 0, 0, known) {
		delete(m.buffers, h)
		m.stale = append(m.stale, h)
	}
}

func (x *machine) createFence(*rapid.T) {
	m := x.pick()
	initial := rapid.Uint64Range(0, 5).Draw(x.t, "initial")
	h, err := m.real.CreateFence(initial)
	if x.made(m, err, ledger.Fences, 1, true) {
		m.fences[h] = &modelFence{initial: initial, reached: initial, outcomes: map[uint64]outcome.Outcome{}}
	}
}

func (x *machine) destroyFence(*rapid.T) {
	m := x.pick()
	h, known := handleOf(x, m, m.fences)
	if x.expect(m, m.real.DestroyFence(h), 0, 0, known) {
		delete(m.fences, h)
		m.stale = append(m.stale, h)
	}
}

func (x *machine) signalFence(*rapid.T) {
	m := x.pick()
	h, known := handleOf(x, m, m.fences)
	v := rapid.Uint64Range(0, 60).Draw(x.t, "value")
	err := m.real.SignalFence(h, v)
	if f := m.fences[h]; known && !m.closed && v <= f.reached {
		require.ErrorIs(x.t, err, gpuerr.Invalid)
	} else if x.expect(m, err, 0, 0, known) {
		f.reached, f.outcomes[v] = v, outcome.Success
	}
}

func (x *machine) openProgram(*rapid.T) {
	m := x.pick()
	h, _, err := m.real.OpenProgram("p")
	if x.made(m, err, ledger.Programs, 1, true) {
		m.programs[h] = true
	}
}

func (x *machine) closeProgram(*rapid.T) {
	m := x.pick()
	h, known := handleOf(x, m, m.programs)
	if x.expect(m, m.real.CloseProgram(h), 0, 0, known) {
		delete(m.programs, h)
		m.stale = append(m.stale, h)
	}
}

func (x *machine) createQueue(*rapid.T) {
	m := x.pick()
	if m.queue != nil {
		return
	}
	info, err := m.real.CreateQueue(16, 64)
	if x.made(m, err, ledger.QueueSlots, minQueueCharge, true) {
		q, err := handles.Lookup[queue](m.real.handles, info.Handle)
		require.NoError(x.t, err)
		m.queue = &client{t: x.t, s: m.real, h: info.Handle, mem: q.ring.(*memRing)}
		m.group, m.skipping = outcome.Success, false
	}
}

func (x *machine) closeQueue(*rapid.T) {
	if m := x.pick(); m.queue != nil {
		require.NoError(x.t, m.real.CloseQueue(m.queue.h))
		require.ErrorIs(x.t, m.real.CloseQueue(m.queue.h), gpuerr.Stale)
		m.stale = append(m.stale, m.queue.h)
		m.queue = nil
	}
}

// submit sends a batch to a queue and compares every completion with the model.
func (x *machine) submit(*rapid.T) {
	m := x.pick()
	if m.queue == nil {
		return
	}
	type want struct {
		how    outcome.Outcome
		code   gpuerr.Code
		either bool // it came after a trap and a refusal: which was first known is not said
	}
	var wants []want
	refused := func(code gpuerr.Code) want { return want{how: outcome.Outcome{Kind: outcome.Failed}, code: code} }
	failed := false // work of the batch: the rest depends on it
	m.queue.mem.hide()
	for range rapid.IntRange(1, 12).Draw(x.t, "entries") {
		var w want
		switch op := rapid.SampledFrom([]string{"nop", "fill", "fill", "signal", "wait"}).Draw(x.t, "op"); op {
		case "nop":
			m.queue.push(ring.NopEntry(0), nil, nil)
			w = want{how: outcome.Success}
		case "fill":
			h, known := handleOf(x, m, m.buffers)
			off, n := 4*rapid.Uint64Range(0, 3000).Draw(x.t, "off"), 4*rapid.Uint64Range(1, 3000).Draw(x.t, "n")
			pattern := rapid.SampledFrom([]uint32{1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3}).Draw(x.t, "pattern")
			m.queue.fill(h, off, n, pattern)
			switch {
			case m.skipping:
				w = want{how: dependentOutcome}
			case !known:
				w = refused(gpuerr.Stale)
			case off+n > m.buffers[h]:
				w = refused(gpuerr.Invalid)
			case m.trapped:
				w = want{how: poisonedOutcome, either: failed}
			case failed:
				w = want{how: dependentOutcome}
			default:
				w = want{how: scripted[pattern]}
				m.trapped = pattern == 3
			}
			failed = failed || w.how.Kind != outcome.OK && !m.skipping
		case "signal":
			h, known := handleOf(x, m, m.fences)
			v := rapid.Uint64Range(0, 60).Draw(x.t, "value")
			m.queue.signal(h, v)
			f := m.fences[h]
			switch {
			case !known:
				w = refused(gpuerr.Stale)
			case v <= f.reached:
				w = refused(gpuerr.Invalid)
			default:
				f.reached, f.outcomes[v] = v, m.group
				wants = append(wants, want{how: m.group})
				m.group, m.skipping = outcome.Success, false
				continue
			}
		case "wait":
			h, known := handleOf(x, m, m.fences)
			v := uint64(0)
			if known {
				v = rapid.Uint64Range(0, m.fences[h].reached).Draw(x.t, "value")
			}
			m.queue.wait(h, v)
			switch {
			case m.skipping:
				w = want{how: dependentOutcome}
			case !known:
				w, m.skipping = refused(gpuerr.Stale), true
			case m.fences[h].at(v).Kind != outcome.OK:
				w, m.skipping = want{how: dependentOutcome}, true
			default:
				w = want{how: outcome.Success}
			}
		}
		m.group = outcome.Worse(m.group, w.how)
		wants = append(wants, w)
	}
	m.queue.mem.show()
	for i, c := range m.queue.take(len(wants)) {
		if wants[i].either && c.Outcome == dependentOutcome {
			continue
		}
		require.Equal(x.t, wants[i], want{c.Outcome, c.Code, wants[i].either}, "entry %d of %d", i, len(wants))
	}
}

func (x *machine) restrict(*rapid.T) {
	m := x.pick()
	class := rapid.SampledFrom([]ledger.Class{ledger.Buffers, ledger.DeviceMemory, ledger.Fences}).Draw(x.t, "class")
	n := rapid.Uint64Range(0, 20000).Draw(x.t, "limit")
	real, err := m.real.Restrict(Policy{Facet: FacetFull, Limits: limited(class, n)})
	if x.made(m, err, ledger.Sessions, 1, true) {
		child := newModelSession(real, limited(class, n))
		child.parent = m
		m.children = append(m.children, child)
		x.sessions = append(x.sessions, child)
	}
}

func (x *machine) closeSession(*rapid.T) {
	m := x.pick()
	if m.parent == nil && rapid.IntRange(0, 3).Draw(x.t, "keep") > 0 {
		return
	}
	require.NoError(x.t, m.real.Close())
	x.behind = true
	if m.closed {
		return
	}
	if m.parent != nil {
		for i, c := range m.parent.children {
			if c == m {
				m.parent.children = append(m.parent.children[:i], m.parent.children[i+1:]...)
				break
			}
		}
	}
	m.shut()
	if m.parent == nil {
		x.openTop()
	}
}

// reclaim waits until the books are what they are in the model. Without it nothing else
// shows that a closed session is reclaimed behind its close.
func (x *machine) reclaim(*rapid.T) {
	x.r.reclaimed()
	x.behind = false
}

func newModelSession(s *Session, l ledger.Limits) *modelSession {
	m := &modelSession{real: s, buffers: map[Handle]uint64{}, fences: map[Handle]*modelFence{}, programs: map[Handle]bool{}}
	m.limit = l
	return m
}

func (x *machine) openTop() {
	l := ledger.NoLimits()
	l[ledger.Buffers], l[ledger.DeviceMemory], l[ledger.Fences], l[ledger.Programs], l[ledger.QueueSlots], l[ledger.Sessions] = 6, 100000, 4, 3, 160, 3
	s, err := x.r.dev.OpenSession(Attach{Tenant: fmt.Sprint("t", len(x.sessions)%2), TenantLimits: ledger.NoLimits(), Limits: l, Facet: FacetFull})
	require.NoError(x.t, err)
	x.sessions = append(x.sessions, newModelSession(s, l))
}

// check compares every account and every fence with the model, after each step.
func (x *machine) check(*rapid.T) {
	require.NoError(x.t, x.r.dev.Check())
	for _, m := range x.sessions {
		if m.closed {
			if !x.behind {
				require.NoError(x.t, m.real.account.Zero())
			}
			continue
		}
		budget := m.real.Budget()
		for _, c := range []ledger.Class{ledger.Buffers, ledger.IOVAEntries, ledger.DeviceMemory, ledger.Fences, ledger.Programs, ledger.QueueSlots, ledger.Sessions, ledger.InFlight} {
			if held := budget[c].Used + budget[c].Reserved; x.behind {
				require.GreaterOrEqual(x.t, held, m.used(c), "%v", c)
			} else {
				require.Equal(x.t, m.used(c), held, "%v", c)
			}
		}
		for h, f := range m.fences {
			st, err := m.real.FenceState(h)
			require.NoError(x.t, err)
			require.Equal(x.t, FenceState{Reached: f.reached, Promised: f.reached, Outcome: f.at(f.reached)}, st)
		}
	}
}

func TestAgainstModel(t *testing.T) {
	b := &scriptedBackend{newHandBackend()}
	rapid.Check(t, func(rt *rapid.T) {
		fn, err := fake.New(fake.Options{})
		require.NoError(rt, err)
		dev, err := New(Config{Backend: b, DMA: fn.Grants().DMA, newRing: newTestRing})
		require.NoError(rt, err)
		defer func() {
			require.NoError(rt, dev.Close(context.Background()))
			require.NoError(rt, fn.Close())
		}()
		x := &machine{t: rt, r: &rig{t: rt, dev: dev, fn: fn, mem: true}}
		x.openTop()
		x.openTop()
		rt.Repeat(map[string]func(*rapid.T){
			"": x.check, "createBuffer": x.createBuffer, "destroyBuffer": x.destroyBuffer, "createFence": x.createFence,
			"destroyFence": x.destroyFence, "signalFence": x.signalFence, "openProgram": x.openProgram, "closeProgram": x.closeProgram,
			"createQueue": x.createQueue, "closeQueue": x.closeQueue, "submit": x.submit, "submit2": x.submit,
			"restrict": x.restrict, "closeSession": x.closeSession, "reclaim": x.reclaim,
		})
	})
}
