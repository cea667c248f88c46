package gpu

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/ring"
)

// holder is who has the turn.
func (e *engine) holder() *job {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.turn.holder
}

// later has the turn of now begin so much later, so that it costs what its work says.
func (e *engine) later(by time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.turn.given = e.turn.given.Add(by)
}

// present is that of the level of tenants.
func (e *engine) present() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.top.present
}

// lent reports whether a queue has the turn on loan.
func lent(t *testing.T, c *client) bool {
	q, err := lookup[queue](c.s.handles, c.h)
	require.NoError(t, err)
	return q.burst.loan.word.Load() != 0
}

// Who has one turn after the other is lent them, until anybody wants something else of the
// device, or a tick is over.
func TestLoan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurstBackend()
		b.unfit = func(j *backend.Job) bool { return j.Pattern == 9 }
		b.slow = true
		r := newMemRig(t, withBursts(b))
		alice, bob := r.open("alice"), r.open("bob")
		m, n := buf(t, alice, 4096), buf(t, bob, 4096)
		one, two := r.queue(alice, 16, 64), r.queue(bob, 16, 64)
		borrow := func() {
			t.Helper()
			for range 5 {
				one.fill(m, 0, 4, 1)
				requireOK(t, one.one())
				synctest.Wait() // the watchdog, which the first turn wakes, has looked
			}
			require.True(t, lent(t, one))
		}
		for name, what := range map[string]func(){
			"another's burst": func() { two.fill(n, 0, 4, 1); requireOK(t, two.one()) },
			"another's job":   func() { two.fill(n, 0, 4, 9); requireOK(t, two.one()) },
			"its own job":     func() { one.fill(m, 0, 4, 9); requireOK(t, one.one()) },
			"a close":         func() { require.NoError(t, bob.DestroyBuffer(buf(t, bob, 4096))) },
			"a cancel":        func() { require.NoError(t, alice.CancelQueue(one.h)) },
			"a tick":          func() { time.Sleep(2 * watchTick) },
			"a stop":          func() { require.NoError(t, r.dev.Freeze(t.Context())); r.dev.Thaw() },
			"another weight":  func() { r.dev.engine.setWeight(alice.flow.parent, 2) },
			"a look at it":    func() { require.Nil(t, r.dev.engine.atWork()) },
		} {
			borrow()
			what()
			synctest.Wait()
			require.False(t, lent(t, one), name)
			require.Nil(t, r.dev.engine.holder(), name)
		}
		borrow()
		require.NoError(t, alice.CloseQueue(one.h))
		require.Nil(t, r.dev.engine.holder(), "nothing of a queue that is closed is kept")
		one = r.queue(alice, 16, 64)
		borrow()
		r.dev.engine.lose("gone")
		require.Nil(t, r.dev.engine.holder())
		r.close()
	})
}

// burstOfALoan is a queue that has the turn on loan, and a fill of m that runs until the gate
// is closed.
func burstOfALoan(t *testing.T) (r *rig, s *Session, m Handle, q *client, gate chan struct{}) {
	b := newBurstBackend()
	gate = make(chan struct{})
	holds := false
	b.within = func() {
		if holds {
			<-gate
		}
	}
	r = newMemRig(t, withBursts(b))
	s = r.open("alice")
	m, q = buf(t, s, 4096), r.queue(s, 16, 64)
	for range 5 {
		q.fill(m, 0, 4, 1)
		requireOK(t, q.one())
		synctest.Wait()
	}
	require.True(t, lent(t, q))
	holds = true
	q.fill(m, 0, 4, 1)
	synctest.Wait()
	return r, s, m, q, gate
}

// A burst of a loan that does not end is found, as any.
func TestLoanHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, _, q, gate := burstOfALoan(t)
		time.Sleep(r.dev.cfg.HangBound + 3*watchTick)
		require.Error(t, r.dev.Err())
		close(gate)
		require.Equal(t, lostOutcome, q.one().Outcome)
		r.close()
	})
}

// What bursts of a loan cost is what they cost without it, whatever comes in between: the
// same random turns, of one engine that lends and of another that does not.
func TestLoanCosts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const queues = 4
		type side struct {
			e  *engine
			qs [queues]*queue
		}
		var sides [2]side
		for i := range sides {
			x := &sides[i]
			r := newMemRig(t, withBursts(newBurstBackend()))
			defer r.close()
			x.e = r.dev.engine
			for k := range x.qs {
				s := r.open([]string{"alice", "bob"}[k%2], func(a *Attach) { a.Weight = uint32(k%2 + 1) })
				x.qs[k] = &queue{session: s}
				x.qs[k].burst.init(x.qs[k])
			}
		}
		end := func(lends bool, x *side, q *queue, nanos int64) {
			if q.burst.loan.end(nanos) {
				return
			}
			after := leavesTurn
			if lends {
				after = comesAgain
			}
			_, crowded := x.e.endTurn(&q.burst.turn, nanos, outcome.Outcome{}, after)
			if x.e.mu.Lock(); !crowded && !lends && q.burst.turn.inRow { // it would be lent the next: it owes nobody for this one
				x.e.top.spend(q.session.flow, 0)
			}
			x.e.mu.Unlock()
		}
		for range rapid.IntRange(1, 40).Draw(rt, "rounds") {
			who := rapid.IntRange(0, queues-1).Draw(rt, "who")
			repeat := rapid.IntRange(1, 6).Draw(rt, "times")
			other := rapid.IntRange(0, 2*queues).Draw(rt, "who asks")
			nanos := rapid.Int64Range(500, 50_000).Draw(rt, "half of nanos") * 2 // by weight without a rest
			for i := range sides {
				x := &sides[i]
				lends := i == 0
				for n := range repeat {
					q := x.qs[who]
					if !q.burst.loan.begin() {
						require.True(t, x.e.askTurn(&q.burst.turn))
					}
					asks := n == repeat-1 && other < queues && other != who
					if asks { // while it runs
						require.False(t, x.e.askTurn(&x.qs[other].burst.turn))
					}
					end(lends, x, q, nanos+int64(2*n))
					if asks {
						require.Equal(t, jobSent, x.qs[other].burst.turn.state.Load())
						x.e.later(time.Hour) // it costs its nanos
						end(false, x, x.qs[other], nanos)
					}
				}
				x.e.callBack()
			}
			for k := range sides[0].qs {
				lends, plain := sides[0].qs[k].session.flow, sides[1].qs[k].session.flow
				require.Equal(t, plain.virtual, lends.virtual)
				require.Equal(t, plain.parent.virtual, lends.parent.virtual)
				require.Equal(t, plain.parent.below.present, lends.parent.below.present)
			}
			require.Equal(t, sides[1].e.present(), sides[0].e.present())
		}
	})
}

// Nothing of a buffer runs when its close has returned, and nobody is kept from the device
// for long, whoever has the turn on loan meanwhile.
func TestLoanRaces(t *testing.T) {
	b := newBurstBackend()
	var open atomic.Uint64 // the address of the buffer that may be used; 0: none
	var wrong atomic.Int64
	b.unfit = func(j *backend.Job) bool { return j.Pattern == 9 }
	b.slow = true
	b.ends = func(j *backend.Job) backend.End {
		if j.Pattern == 1 && j.Spans[0].IOVA != open.Load() {
			wrong.Add(1)
		}
		return backend.End{Outcome: outcome.Success, DeviceTime: time.Microsecond}
	}
	r := newMemRig(t, withBursts(b))
	alice, bob := r.open("alice"), r.open("bob")
	var m atomic.Uint64 // the buffer that is used
	var used atomic.Int64
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		q := r.queue(alice, 16, 64)
		wg.Go(func() {
			for !isClosed(stop) {
				q.push(ring.FillEntry(0, m.Load(), 0, 4, 1, 0), nil, nil)
				if q.one().Outcome.Kind == outcome.OK {
					used.Add(1)
				}
			}
		})
	}
	each := func(pause time.Duration, f func()) {
		wg.Go(func() {
			for !isClosed(stop) {
				f()
				time.Sleep(pause)
			}
		})
	}
	n, other := buf(t, bob, 4096), r.queue(bob, 16, 64)
	each(100*time.Microsecond, func() {
		other.fill(n, 0, 4, 2) // a burst
		other.fill(n, 0, 4, 9) // and a job
		requireOK(t, other.take(2)...)
	})
	each(time.Millisecond, func() {
		if r.dev.Freeze(t.Context()) == nil {
			r.dev.Thaw()
		}
	})
	each(300*time.Microsecond, func() { r.dev.engine.setWeight(alice.flow.parent, 2) })
	for range 100 {
		h := buf(t, alice, 4096)
		x, err := lookup[buffer](alice.handles, h)
		require.NoError(t, err)
		open.Store(x.iova)
		before := used.Load()
		m.Store(uint64(h))
		for used.Load() < before+20 {
			time.Sleep(10 * time.Microsecond)
		}
		require.NoError(t, alice.DestroyBuffer(h))
		open.Store(0)
		time.Sleep(20 * time.Microsecond)
	}
	close(stop)
	wg.Wait()
	require.Zero(t, wrong.Load())
	require.NoError(t, r.dev.Check())
}

// Who takes memory away waits for the burst of a loan that runs.
func TestLoanIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s, m, q, gate := burstOfALoan(t)
		closed := make(chan struct{})
		go func() {
			require.NoError(t, s.DestroyBuffer(m))
			close(closed)
		}()
		synctest.Wait()
		require.False(t, isClosed(closed))
		close(gate)
		requireOK(t, q.one())
		<-closed
		q.fill(m, 0, 4, 1)
		require.Equal(t, gpuerr.Stale, q.one().Code)
		r.close()
	})
}
