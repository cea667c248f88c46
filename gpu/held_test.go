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
	refuse atomic.Bool  // to be held
	spoil  atomic.Int64 // makes so many bursts end as ends says
	ends   func(ends []backend.End) (n int)
	within atomic.Pointer[func()]
}

func (d *holdDevice) Hold() bool { return !d.refuse.Load() && d.Device.Hold() }

func (d *holdDevice) BurstHeld(first backend.JobID, jobs []backend.Ready, ends []backend.End) (n int) {
	d.held.Add(1)
	if f := d.within.Load(); f != nil {
		(*f)()
	}
	if d.spoil.Load() > 0 && d.spoil.Add(-1) >= 0 {
		n = d.ends(ends)
		return d.Device.BurstHeld(first, jobs[:n], ends[:n])
	}
	return d.Device.BurstHeld(first, jobs, ends)
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
		"other limits":   func() { require.NoError(t, r.dev.SetTenantLimits("alice", ledger.NoLimits())) },
		"a look":         func() { alice.Budget(); r.dev.Status("") },
		"a tick":         func() { time.Sleep(watchTick) },
	} {
		d.holds(t, 50, launch)
		// While it runs one, which goes on until the loan was called back.
		began, over := make(chan struct{}), make(chan struct{})
		q, err := lookup[queue](alice.handles, one.h)
		require.NoError(t, err)
		f := func() {
			if d.within.Swap(nil) == nil {
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
		d.ends = func(ends []backend.End) int { return len(ends) - 1 } // it leaves the last one
		d.spoil.Store(1)
		for d.spoil.Load() > 0 {
			good()
		}
		d.holds(t, 5, good)
		d.ends = func(ends []backend.End) int { return 0 }
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
