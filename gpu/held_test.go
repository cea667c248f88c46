package gpu

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

// holdDevice is a device that counts the bursts that it runs while it is held.
type holdDevice struct {
	*mock.Device
	held   atomic.Int64
	refuse atomic.Bool            // to be held
	spoil  atomic.Int64           // makes so many bursts end as ends says
	ends   func(jobs int) (n int) // how many of them it runs
	within atomic.Pointer[func()]
	quick  bool // says that each job took a nanosecond
}

func (d *holdDevice) Hold() bool { return !d.refuse.Load() && d.Device.Hold() }

func (d *holdDevice) BurstHeld(first backend.JobID, jobs []backend.Ready, nanos []uint64, last *outcome.Outcome) (n int) {
	d.held.Add(1)
	if f := d.within.Load(); f != nil {
		(*f)()
	}
	if d.spoil.Load() > 0 && d.spoil.Add(-1) >= 0 {
		jobs = jobs[:d.ends(len(jobs))]
	}
	n = d.Device.BurstHeld(first, jobs, nanos, last)
	for i := range n {
		if d.quick {
			nanos[i] = 1
		}
	}
	return n
}

func newHoldRig(t *testing.T) (*rig, *holdDevice) {
	device, err := mock.New(mock.Options{})
	require.NoError(t, err)
	d := &holdDevice{Device: device}
	return newRig(t, withBackend(d)), d
}

// holds has a queue launch until so many bursts more were run by one that holds the device.
func (d *holdDevice) holds(t *testing.T, more int64, launch func()) {
	t.Helper()
	until := d.held.Load() + more
	for began := time.Now(); d.held.Load() < until; launch() {
		require.Less(t, time.Since(began), 20*time.Second, "the device is never held")
	}
}

// Who reads the books after a completion finds in them what it says, however it was run.
func TestHeldBooks(t *testing.T) {
	r, d := newHoldRig(t)
	s := r.open("alice")
	q, m := r.queue(s, 16, 4096), buf(t, s, 64)
	n, nanos := uint64(0), uint64(0)
	d.holds(t, 100, func() {
		q.fill(m, 0, 64, 1)
		c := q.one()
		requireOK(t, c)
		n++
		if nanos += c.DeviceNanos; n%16 != 0 {
			return
		}
		budget := s.Budget()
		require.Zero(t, budget[ledger.InFlight].Reserved+budget[ledger.InFlight].Used)
		require.Equal(t, nanos, budget[ledger.DeviceTime].Used)
		require.Equal(t, n, r.dev.Status("alice").Tenants[0].Sessions[0].Outcomes["ok"])
		require.NoError(t, r.dev.Check())
	})
	r.close()
}

// Whoever wants the device, or is to know that something is not used any more, has it from a
// queue that holds it, at once.
func TestHoldIsGivenBack(t *testing.T) {
	r, d := newHoldRig(t)
	alice, bob := r.open("alice"), r.open("bob")
	one, two := r.queue(alice, 16, 4096), r.queue(bob, 16, 4096)
	m, n := buf(t, alice, 64), buf(t, bob, 64)
	launch := func() { one.fill(m, 0, 64, 1); requireOK(t, one.one()) }
	for name, what := range map[string]func(){
		"another's":      func() { two.fill(n, 0, 64, 1); requireOK(t, two.one()) },
		"a close":        func() { require.NoError(t, bob.DestroyBuffer(buf(t, bob, 64))) },
		"a cancel":       func() { require.NoError(t, alice.CancelQueue(one.h)) },
		"a stop":         func() { require.NoError(t, r.dev.Freeze(t.Context())); r.dev.Thaw() },
		"another weight": func() { r.dev.engine.setWeight(alice.flow.parent, 2) },
		"other limits":   func() { require.NoError(t, r.dev.SetTenant("alice", TenantPolicy{Limits: ledger.NoLimits()})) },
		"a look":         func() { alice.Budget(); r.dev.Status("") },
		"a tick":         func() { time.Sleep(watchTick) },
	} {
		d.holds(t, 50, launch)
		// While it runs one, which goes on until the loan was called back.
		began, over := make(chan struct{}), make(chan struct{})
		q, err := lookup[queue](alice.handles, one.h)
		require.NoError(t, err)
		f := func() {
			if q.burst.held.byTurn || d.within.Swap(nil) == nil { // a turn is not called back
				return
			}
			close(began)
			for wait := time.Now(); q.burst.loan.goes() && time.Since(wait) < 5*time.Second; {
				time.Sleep(10 * time.Microsecond)
			}
		}
		d.within.Store(&f)
		go func() {
			defer close(over)
			<-began
			what()
		}()
		d.holds(t, 1, launch)
		for tried := time.Now(); d.within.Load() != nil; launch() {
			require.Less(t, time.Since(tried), 20*time.Second)
		}
		select {
		case <-over:
		case <-time.After(20 * time.Second):
			require.Fail(t, "it waits for ever", name)
		}
	}
	require.NoError(t, alice.CloseQueue(one.h))
	require.NoError(t, bob.CloseQueue(two.h)) // which may hold it now
	require.Nil(t, r.dev.engine.holder(), "nothing of a queue that is closed is kept")
	r.close()
}

// A buffer is not used any more when its close has returned, though it was found open by the
// queue that holds the device: the close waits for the hold.
func TestHeldClose(t *testing.T) {
	r, d := newHoldRig(t)
	s := r.open("alice")
	q := r.queue(s, 16, 4096)
	for range 20 {
		m := buf(t, s, 64)
		d.holds(t, 20, func() { q.fill(m, 0, 64, 1); requireOK(t, q.one()) })
		var closed atomic.Bool
		over := make(chan struct{})
		go func() {
			defer close(over)
			_ = s.DestroyBuffer(m)
			closed.Store(true)
		}()
		for refused := 0; refused < 3; {
			late := closed.Load()
			q.fill(m, 0, 64, 2)
			if c := q.one(); c.Code != gpuerr.None {
				require.Equal(t, gpuerr.Stale, c.Code)
				refused++
			} else {
				requireOK(t, c)
				require.False(t, late, "it ran after the close")
			}
		}
		<-over
	}
	r.close()
}

// What does not end well while the device is held ends as it does otherwise, and what was not
// run goes on.
func TestHeldAndNotOK(t *testing.T) {
	r, d := newHoldRig(t)
	s := r.open("alice")
	q, m := r.queue(s, 64, 4096), buf(t, s, 64)
	all := func(k int) (bad int) {
		for range k {
			q.push(ring.FillEntry(0, uint64(m), 0, 64, 1, 0), nil, nil)
		}
		for _, c := range q.take(k) {
			if c.Outcome != outcome.Success {
				require.Equal(t, errorOutcome, c.Outcome)
				bad++
			}
		}
		return bad
	}
	good := func() { require.Zero(t, all(3)) }
	for range 20 {
		d.holds(t, 5, good)
		d.ends = func(jobs int) int { return jobs - 1 } // it leaves the last one
		d.spoil.Store(1)
		for d.spoil.Load() > 0 {
			good()
		}
		d.holds(t, 5, good)
		d.ends = func(int) int { return 0 }
		d.spoil.Store(1)
		for d.spoil.Load() > 0 {
			good()
		}
		d.refuse.Store(true) // to be held
		for range 10 {
			good()
		}
		d.refuse.Store(false)
	}
	require.Zero(t, s.Budget()[ledger.InFlight].Used+s.Budget()[ledger.InFlight].Reserved)
	require.NoError(t, r.dev.Check())
	r.close()
}

// A queue that only sweepers have served, in their buffers, has made none of its own for bursts
// when it holds the device for the first time.
func TestHoldAfterSweeps(t *testing.T) {
	r, d := newHoldRig(t)
	s := r.open("alice")
	p, m := prog(t, s, "vecadd_f32"), buf(t, s, 64)
	for tried := time.Now(); ; {
		require.Less(t, time.Since(tried), 20*time.Second, "no sweeper's turn is lent")
		c := r.queue(s, 16, 4096)
		q := c.served(t)
		if holdAfterSweeps(t, c, q, p, whole(m)) {
			break
		}
	}
	require.Positive(t, d.held.Load())
	r.close()
}

// holdAfterSweeps reports whether the queue was lent the device by a sweeper, and has held it then.
//
// +checklocksignore: TryLock is not understood
func holdAfterSweeps(t *testing.T, c *client, q *queue, p Handle, b ring.Binding) bool {
	w := &sweeper{crowd: &crowd{}}
	for range 3 { // known from the second on
		c.launch(p, b, b, b)
		requireOK(t, w.serves(t, c, q))
	}
	lent := func() bool { // unless its own goroutine was woken for it
		if !q.serving.TryLock() {
			return false
		}
		defer q.serving.Unlock()
		if q.picked != nil || !q.mayHold() || q.burst.loan.word.Load() == 0 {
			return false
		}
		c.launch(p, b, b, b)
		_, _, err := q.hold(1000)
		require.NoError(t, err)
		_, err = q.take() // what was called back in the midst
		require.NoError(t, err)
		q.flush()
		return true
	}()
	if lent {
		requireOK(t, w.serves(t, c, q))
	}
	w.release(q)
	return lent && q.burst.held.bursts > 0
}

// serves visits a queue until its client has a completion.
func (w *sweeper) serves(t *testing.T, c *client, q *queue) ring.Completion {
	var one [1]ring.Completion
	for began := time.Now(); ; {
		n, err := c.ring.Poll(one[:])
		require.NoError(t, err)
		if n == 1 {
			return one[0]
		}
		require.Less(t, time.Since(began), 20*time.Second)
		w.visit(q)
	}
}

// A sweeper's turn holds the device for several bursts. What does not end well in the midst of
// them ends as otherwise, what is behind it goes on, and the books have all of it before the
// client is told.
//
// +checklocksignore: serving is locked in parts
func TestTurnHoldsForManyBursts(t *testing.T) {
	r, d := newHoldRig(t)
	d.quick = true
	s := r.open("alice")
	c, m := r.queue(s, 512, 4096), buf(t, s, 64)
	q := c.served(t)
	w := &sweeper{crowd: &crowd{}}
	nanos := uint64(0)
	all := func(n int) { // leaves the queue to who holds serving
		q.serving.Unlock()
		defer q.serving.Lock()
		for range n {
			c.next++
			e := ring.FillEntry(c.next, uint64(m), 0, 64, 1, 0)
			require.NoError(t, c.ring.Push(&e, nil, nil))
		}
		require.NoError(t, c.ring.Flush())
		for range n {
			one := w.serves(t, c, q)
			requireOK(t, one)
			nanos += one.DeviceNanos
		}
	}
	q.serving.Lock()
	for began := time.Now(); q.burst.held.bursts < turnBursts; all(4 * maxBurst) {
		require.Less(t, time.Since(began), 20*time.Second, "a turn never has more than %d bursts", q.burst.held.bursts)
	}
	for _, leaves := range []int{0, 1, 7} {
		for range 20 {
			d.ends = func(jobs int) int { return max(jobs-leaves, 0) }
			d.spoil.Store(2)
			all(200)
			require.Equal(t, nanos, s.Budget()[ledger.DeviceTime].Used)
			require.Zero(t, q.burst.held.before, "a turn that is over is paid for")
			require.Zero(t, s.Budget()[ledger.InFlight].Reserved+s.Budget()[ledger.InFlight].Used)
		}
	}
	d.spoil.Store(0)
	require.Equal(t, c.next, r.dev.Status("alice").Tenants[0].Sessions[0].Outcomes["ok"])
	q.serving.Unlock()
	w.release(q)
	require.NoError(t, r.dev.Check())
	r.close()
}
