package gpu

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// size is how many queues are in it.
func (c *crowd) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queues)
}

// requireSwept checks that every crowd of a tenant was swept, and is no more.
//
// +checklocksignore: all sleep
func requireSwept(t *testing.T, tenant *tenant) {
	for _, c := range tenant.crowds.all {
		require.False(t, c.swept.Load())
		require.Len(t, c.queues, crowdLeast)
		require.True(t, c.rest > 0 || c.turns > 0, "there was none")
	}
}

// crowdRig is a tenant whose queues are as many crowds as there can be, the smallest ones.
type crowdRig struct {
	*rig
	t    *testing.T
	s    *Session
	p, m Handle
	all  []*client
}

// newCrowdRig is called in a bubble of synctest.
func newCrowdRig(t *testing.T) *crowdRig {
	r := newMemRig(t, withBackend(&burster{newBurstBackend()}))
	s := r.open("alice")
	x := &crowdRig{rig: r, t: t, s: s, p: prog(t, s, "p"), m: buf(t, s, 4096)}
	for range crowdLeast * max(1, runtime.GOMAXPROCS(0)/2) {
		x.all = append(x.all, r.queue(s, 16, 4096))
	}
	synctest.Wait() // all have joined
	return x
}

// wake has all of them woken one after the other.
func (x *crowdRig) wake() {
	synctest.Wait()
	for _, c := range x.all {
		c.launch(x.p, whole(x.m))
	}
	for _, c := range x.all {
		requireOK(x.t, c.one())
	}
}

// Queues that are woken one after the other within a short time begin a sweep, which ends,
// and leaves all of them asleep on their own.
func TestCrowdIsSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCrowdRig(t)
		for round := range 20 {
			if round%2 == 0 {
				time.Sleep(2 * crowdWindow)
			}
			x.wake()
		}
		synctest.Wait()
		requireSwept(t, x.s.tenant)
		for _, c := range x.all {
			q, err := lookup[queue](x.s.handles, c.h)
			require.NoError(t, err)
			swept, asleep := (&sleeper{q: q}).asleep()
			require.True(t, asleep)
			require.False(t, swept.watched)
		}
		x.close()
	})
}

// Sweeps that were not worth it make the next one rarer, and one that was does not.
func TestSweepMustBeWorthIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{}
		for _, rest := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 64} {
			(&sweeper{crowd: c}).resign(false)
			require.Equal(t, rest*time.Millisecond, c.rest)
			require.Equal(t, time.Now().Add(c.rest), c.until)
			time.Sleep(time.Second)
		}
		(&sweeper{crowd: c}).resign(true)
		require.Zero(t, c.rest)
		require.False(t, time.Now().Before(c.until))
	})
}

// A sweep goes on as long as many have something, and ends soon when few have, however
// much that is.
func TestSweepEndsWhereFewWork(t *testing.T) {
	const n = 1024
	for _, c := range []struct {
		work int // that always have something
		ends bool
	}{{0, true}, {1, true}, {4, true}, {n / 2, false}, {n, false}} {
		p := patience{}
		p.begin(n)
		p.left = p.most()
		looks := 0
		for ; p.left > 0 && looks < 20*p.most(); looks++ {
			if looks%n == n-1 {
				p.begin(n)
			}
			i := looks % n
			if c.work < n/2 { // the sweeper comes back to whom it has served
				i = looks % 13
			}
			p.looked(i, i < c.work)
		}
		require.Equal(t, c.ends, p.left <= 0, "%d queues: %d looks", c.work, looks)
		require.LessOrEqual(t, p.left, p.most())
	}
}

// restUntil has all crowds rest.
func (c *crowds) restUntil(until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.all {
		one.mu.Lock()
		one.until = until
		one.mu.Unlock()
	}
}

// swept is how many of the crowds were, and are no more.
func (c *crowds) swept() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.all {
		one.mu.Lock()
		if one.rest > 0 || one.turns > 0 {
			n++
		}
		one.mu.Unlock()
	}
	return n
}

// A crowd is not swept while it rests, however many are woken, and is afterwards.
func TestCrowdRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCrowdRig(t)
		until := time.Now().Add(crowdRestMost)
		x.s.tenant.crowds.restUntil(until)
		for range 5 {
			x.wake()
			synctest.Wait()
		}
		require.True(t, time.Now().Before(until))
		require.Zero(t, x.s.tenant.crowds.swept())
		time.Sleep(crowdRestMost)
		x.wake()
		synctest.Wait()
		requireSwept(t, x.s.tenant)
		x.close()
	})
}
