package gpu

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/ring"
)

// A queue has the turn only when nothing else is in the device: until then it waits, can
// be cancelled and closed, and what was ahead of it is not disturbed.
func TestTurnWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurstBackend()
		gate := make(chan struct{})
		b.slow = true
		b.unfit = func(j *backend.Job) bool { return j.Pattern == 1 }
		b.ends = func(j *backend.Job) backend.End {
			if j.Pattern == 1 {
				<-gate
			}
			return backend.End{Outcome: outcome.Success, DeviceTime: time.Microsecond}
		}
		r := newMemRig(t, withBursts(b))
		alice, bob := r.open("alice"), r.open("bob")
		m, busy := buf(t, alice, 4096), r.queue(alice, 16, 64)
		o := buf(t, bob, 4096)
		one, two, three := r.queue(bob, 16, 64), r.queue(bob, 16, 64), r.queue(bob, 16, 64)
		busy.fill(m, 0, 4, 1)
		synctest.Wait()
		for _, q := range []*client{one, two, three} {
			q.fill(o, 0, 4, 2)
		}
		synctest.Wait()
		require.Zero(t, b.bursts.Load(), "the device is not free")
		require.Zero(t, one.left()+two.left()+three.left())

		require.NoError(t, bob.CancelQueue(two.h))
		require.Equal(t, cancelledOutcome, two.one().Outcome)
		require.NoError(t, bob.CloseQueue(three.h))
		require.Equal(t, revokedOutcome, three.one().Outcome)
		require.Zero(t, b.bursts.Load())

		gate <- struct{}{}
		requireOK(t, busy.one(), one.one())
		synctest.Wait() // until nothing is spoiled any more
		two.fill(o, 0, 4, 2)
		requireOK(t, two.one())
		require.EqualValues(t, 1, b.bursts.Load(), "beside what was cancelled, and so spoiled, there are none")
		require.NoError(t, r.dev.Check())
		r.idleButBuffers(bob)
		close(gate)
		r.close()
	})
}

// What is to wait for a turn waits for the one there is, and not for those that follow.
func TestAwaitTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurstBackend()
		gate := make(chan struct{})
		b.within = func() { <-gate }
		r := newMemRig(t, withBursts(b))
		s := r.open("alice")
		m := buf(t, s, 4096)
		one, two := r.queue(s, 16, 64), r.queue(s, 16, 64)
		one.fill(m, 0, 4, 1)
		synctest.Wait()
		two.fill(m, 0, 4, 1)
		awaited := make(chan struct{})
		go func() {
			r.dev.engine.awaitTurn()
			close(awaited)
		}()
		synctest.Wait()
		require.False(t, isClosed(awaited))
		gate <- struct{}{}
		synctest.Wait()
		require.True(t, isClosed(awaited))
		close(gate)
		requireOK(t, one.one(), two.one())
		r.dev.engine.awaitTurn()
		r.close()
	})
}

// Two queues whose work is now taken in bursts and now declined both get on.
func TestTurnsAndDeclines(t *testing.T) {
	b := newBurstBackend()
	n := 0
	b.alone = func(*backend.Job) bool { n++; return n%3 == 0 } // one burst at a time
	b.slow = true
	r := newMemRig(t, withBursts(b))
	var all [3]*client
	for i := range all {
		s := r.open([]string{"alice", "bob"}[i%2])
		m := buf(t, s, 4096)
		all[i] = r.queue(s, 64, 64)
		go func() {
			for k := range uint32(1000) {
				all[i].fill(m, 0, 4, k)
			}
		}()
	}
	for _, q := range all {
		requireOK(t, q.take(1000)...)
	}
	require.Positive(t, b.inBursts.Load())
	require.NoError(t, r.dev.Check())
}

// looksRing is a ring that ends when it was looked at far too often.
type looksRing struct {
	*memRing
	looks atomic.Int64
}

func (l *looksRing) SpinTake(b *ring.Batch, most, spins int) (int, error) {
	if l.looks.Add(1) > 10_000 {
		return 0, gpuerr.New(gpuerr.Protocol, "too many looks")
	}
	return l.memRing.SpinTake(b, most, spins)
}

// A queue whose asking for the turn was cancelled, and that has nothing else, sleeps.
func TestCancelledTurnSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurstBackend()
		gate := make(chan struct{})
		b.within = func() { <-gate }
		r := newMemRig(t, withBursts(b))
		alice, bob := r.open("alice"), r.open("bob")
		busy := r.queue(alice, 16, 64)
		l := &looksRing{}
		r.dev.newRing = func(cfg ring.Config) (serverRing, error) {
			l.memRing = newMemRing(cfg)
			return l, nil
		}
		info, err := bob.CreateQueue(16, 64)
		require.NoError(t, err)
		q := &client{t: t, s: bob, h: info.Handle, mem: l.memRing}
		busy.fill(buf(t, alice, 4096), 0, 4, 1)
		synctest.Wait()
		m := buf(t, bob, 4096)
		q.fill(m, 0, 4, 1)
		synctest.Wait() // it asks
		require.NoError(t, bob.CancelQueue(q.h))
		require.Equal(t, cancelledOutcome, q.one().Outcome)
		close(gate)
		requireOK(t, busy.one())
		synctest.Wait()
		require.Less(t, l.looks.Load(), int64(1000))
		q.fill(m, 0, 4, 1)
		requireOK(t, q.one())
		r.close()
	})
}

// A turn that comes while its queue is about to sleep wakes it.
func TestTurnComesBeforeSleep(t *testing.T) {
	r := newMemRig(t, withBursts(newBurstBackend()))
	s := r.open("alice")
	served, err := lookup[queue](s.handles, r.queue(s, 16, 64).h)
	require.NoError(t, err)
	q := &queue{ // that is not served, but for rest
		session: s, node: served.node, wake: make(chan struct{}, 1),
		ring: newMemRing(ring.Config{Entries: 16}), jobs: make([]*job, 16), scratch: newScratch(0),
	}
	q.slumber.Store(newSlumber())
	q.burst.init(q)
	turn := &q.burst.turn
	var round, over, spun atomic.Int64
	spin := func(n int64) {
		for range n {
			spun.Load()
		}
	}
	yield := func(looks int) { // often only where they share a processor
		if looks%8192 == 8191 {
			runtime.Gosched()
		}
	}
	const rounds = 30_000
	end := time.Now().Add(2 * time.Second)
	var wg sync.WaitGroup
	wg.Go(func() { // gives it the turn
		defer func() {
			over.Store(math.MaxInt64)
			q.rouse() // wherever it sleeps
			nudge(q.wake)
		}()
		for n := int64(1); n <= rounds && time.Now().Before(end); n++ {
			for looks := 0; round.Load() < n; looks++ {
				yield(looks)
			}
			spin(n * 7 % 256)
			turn.state.Store(jobSent)
			q.kick()
			began := time.Now()
			for looks := 0; over.Load() < n; looks++ {
				yield(looks)
				if time.Since(began) > 10*time.Second {
					t.Error("a queue sleeps and has the turn")
					return
				}
			}
		}
	})
	for n := int64(1); over.Load() < math.MaxInt64; n++ {
		turn.state.Store(jobReady)
		round.Store(n)
		spin(n * 11 % 256)
		for !q.turnCame() && over.Load() < math.MaxInt64 { // the kick of the last round may come only now
			require.NoError(t, q.rest(nil, nil))
		}
		over.CompareAndSwap(n-1, n)
		select {
		case <-q.wake:
		default:
		}
	}
	wg.Wait()
}

// A turn costs what the device was kept for it, and not what its jobs say.
func TestTurnCostsItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const long = 100 * time.Microsecond
		b := newBurstBackend()
		b.slow = true
		b.unfit = func(j *backend.Job) bool { return j.Pattern == 1 }
		b.within = func() { time.Sleep(long / 2) }
		var had atomic.Int64
		b.ends = func(j *backend.Job) backend.End {
			if j.Pattern == 1 {
				time.Sleep(long)
				had.Add(int64(long))
				return backend.End{Outcome: outcome.Success, DeviceTime: long}
			}
			return backend.End{Outcome: outcome.Success, DeviceTime: time.Microsecond}
		}
		r := newMemRig(t, withBursts(b))
		alice, mallory := r.open("alice"), r.open("mallory")
		stop := make(chan struct{})
		var wg sync.WaitGroup
		flood := func(s *Session, q *client, pattern uint32) {
			m := buf(t, s, 4096)
			wg.Go(func() {
				for range 4 {
					q.fill(m, 0, 4, pattern)
				}
				for !isClosed(stop) {
					q.fill(m, 0, 4, pattern)
					q.one()
				}
			})
		}
		flood(alice, r.queue(alice, 16, 64), 1)
		for range 8 {
			flood(mallory, r.queue(mallory, 16, 64), 2)
		}
		const all = 200 * time.Millisecond
		time.Sleep(all)
		share := float64(had.Load()) / float64(all)
		close(stop)
		require.Greater(t, share, 0.4, "of the device for who may have half of it")
		wg.Wait()
		r.close()
	})
}
