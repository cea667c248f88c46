package gpu

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/outcome"
)

// Who asks again as soon as he has his answer has his share beside one whose jobs are long:
// those are not begun in the moment in between, and not put behind his either.
func TestShareOfWhoWaitsForEachAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand))
		const long, short = 50 * time.Millisecond, time.Millisecond
		const isLong, isShort = 1, 2
		alice, bob := r.open("alice"), r.open("bob")
		a, b := buf(t, alice, 4096), buf(t, bob, 4096)
		qa, qb := r.queue(alice, 64, 0), r.queue(bob, 64, 0)
		for range 40 {
			qa.fill(a, 0, 4, isLong)
		}
		qb.fill(b, 0, 4, isShort)
		var longs, shorts int
		for n := 0; shorts < 300; n++ {
			id := hand.nth(t, n)
			hand.mu.Lock()
			kind := hand.jobs[n].Pattern
			hand.mu.Unlock()
			took := short
			if kind == isLong {
				took = long
				longs++
			}
			time.Sleep(took)
			hand.finish(id, outcome.Success, took)
			if kind == isShort {
				shorts++
				qb.one()
				time.Sleep(short / 4) // its client looks at it, and asks anew
				qb.fill(b, 0, 4, isShort)
			}
			synctest.Wait()
		}
		// Of 300 ms each has one half; the first of the long ones were there before.
		require.InDelta(t, 300*short/long, longs, 4)

		// Who does not come back is not waited for.
		require.NoError(t, bob.Close())
		n := longs + shorts
		start := time.Now()
		for range 3 {
			hand.finish(hand.nth(t, n), outcome.Success, long)
			n++
		}
		require.Less(t, time.Since(start), 3*holdMost)
		r.close()
	})
}

// The device does not idle for somebody who hardly uses it.
func TestHoldIsNoLongerThanTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand))
		const long, short, seldom = 10 * time.Millisecond, 10 * time.Microsecond, time.Millisecond
		alice, bob := r.open("alice"), r.open("bob")
		a, b := buf(t, alice, 4096), buf(t, bob, 4096)
		qa, qb := r.queue(alice, 64, 0), r.queue(bob, 64, 0)
		for range 60 {
			qa.fill(a, 0, 4, 1)
		}
		start := time.Now()
		var longs int
		for n := 0; longs < 50; n++ {
			id := hand.nth(t, n)
			hand.mu.Lock()
			of := hand.jobs[n].Pattern
			hand.mu.Unlock()
			if of == 2 {
				time.Sleep(short)
				hand.finish(id, outcome.Success, short)
				qb.one()
				continue
			}
			time.Sleep(long)
			longs++
			hand.finish(id, outcome.Success, long)
			if longs%4 == 0 {
				qb.fill(b, 0, 4, 2) // every 40 ms
				time.Sleep(seldom)
			}
			synctest.Wait()
		}
		require.Less(t, time.Since(start), 50*long*11/10+50/4*seldom)
		r.close()
	})
}

// Nor for somebody whose virtual time goes along with the others' while he does nothing:
// he has not worked for that.
func TestHoldIsNotForIdling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand))
		const long, short = 3 * time.Millisecond, time.Microsecond
		alice, bob := r.open("alice"), r.open("bob")
		a, b := buf(t, alice, 4096), buf(t, bob, 4096)
		qa, qb := r.queue(alice, 128, 0), r.queue(bob, 64, 0)
		for range 110 {
			qa.fill(a, 0, 4, 1)
		}
		qb.fill(b, 0, 4, 2)
		start := time.Now()
		for n, longs := 0, 0; longs < 100; n++ {
			id := hand.nth(t, n)
			hand.mu.Lock()
			of := hand.jobs[n].Pattern
			hand.mu.Unlock()
			if of == 2 {
				time.Sleep(short)
				hand.finish(id, outcome.Success, short)
				qb.one()
			} else {
				time.Sleep(long)
				longs++
				hand.finish(id, outcome.Success, long)
				if longs%4 == 1 {
					qb.fill(b, 0, 4, 2)
				}
			}
			synctest.Wait()
		}
		require.Less(t, time.Since(start), 100*long*11/10)
		r.close()
	})
}
