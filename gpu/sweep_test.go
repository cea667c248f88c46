package gpu

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/ring"
)

func (deadRing) Ahead()             {}
func (deadRing) Watch() ring.Sight  { return ring.Ended }
func (deadRing) Resign() ring.Sight { return ring.Nothing }
func (deadRing) Unwatch()           {}

// sleeper is a queue that sleeps on its ring, and a sweeper that nobody has begun.
type sleeper struct {
	r *rig
	b *burstBackend
	s *Session
	c *client
	q *queue
	p Handle
	m Handle
	w *sweeper
}

// newSleeper is called in a bubble of synctest.
func newSleeper(t *testing.T) *sleeper {
	b := newBurstBackend()
	r := newMemRig(t, withLists(b))
	s := r.open("alice")
	x := &sleeper{r: r, b: b, s: s, c: r.queue(s, 16, 4096), p: prog(t, s, "p"), m: buf(t, s, 4096)}
	var err error
	x.q, err = lookup[queue](s.handles, x.c.h)
	require.NoError(t, err)
	x.w = &sweeper{crowd: &crowd{}}
	synctest.Wait()
	require.False(t, x.w.visit(x.q), "there is nothing")
	return x
}

// asleep reports whether runQueue sleeps, and how the queue stands with those who sweep.
//
// +checklocksignore: TryLock is not understood
func (x *sleeper) asleep() (s sweptState, yes bool) {
	synctest.Wait()
	if !x.q.serving.TryLock() {
		return s, false
	}
	defer x.q.serving.Unlock()
	return x.q.sweep, true
}

// A queue that is watched is served by the sweeper, in the sweeper's buffers, while its own
// goroutine sleeps, and by its own goroutine afterwards.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newSleeper(t)
		for range 3 {
			for range 5 {
				x.c.launch(x.p, whole(x.m))
			}
			synctest.Wait()
			require.Zero(t, x.c.left(), "nobody was woken")
			require.True(t, x.w.visit(x.q))
			requireOK(t, x.c.take(5)...)
			require.False(t, x.w.visit(x.q))
			swept, asleep := x.asleep()
			require.True(t, asleep)
			require.Equal(t, sweptState{watched: true}, swept)
		}
		require.EqualValues(t, 15, x.b.inBursts.Load())
		require.EqualValues(t, 15, wordAt(host(t, x.s, x.m), 0))
		require.Nil(t, x.q.batch.Entries, "it has not needed its own")
		require.Nil(t, x.q.told)
		require.Nil(t, x.q.ready)
		x.w.release(x.q)
		for range 5 {
			x.c.launch(x.p, whole(x.m))
			requireOK(t, x.c.one())
		}
		x.r.idleButBuffers(x.s)
		x.r.close()
	})
}

// requireClean: once a round is over, nothing leads from the sweeper's buffers to a queue.
func (w *sweeper) requireClean(t *testing.T) {
	t.Helper()
	w.round()
	require.Nil(t, w.batch.Kept)
	for _, x := range w.batch.Entries[:cap(w.batch.Entries)] {
		require.Nil(t, x.Known)
	}
	for i := range w.ready {
		require.Nil(t, w.ready[i])
		require.Nil(t, w.picked[i])
	}
}

// What a queue leaves in the buffers that it shares is gone when the round is over: nothing of
// one that is closed, which nobody is charged for any more, stays.
func TestSweepKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newSleeper(t)
		serve := func(n int) {
			for range n {
				x.c.launch(x.p, whole(x.m))
			}
			require.True(t, x.w.visit(x.q))
			requireOK(t, x.c.take(n)...)
			synctest.Wait()
		}
		for _, n := range []int{5, 5, 2} {
			serve(n)
			require.NotNil(t, x.q.burst.memo.last, "it remembers")
			x.w.requireClean(t)
		}
		x.w.release(x.q)
		for range 3 { // in buffers of its own
			x.c.launch(x.p, whole(x.m))
			requireOK(t, x.c.one())
		}
		synctest.Wait()
		x.w.visit(x.q)
		own := x.q.batch
		x.b.slow = true
		x.b.unfit = func(j *backend.Job) bool { return j.Op == backend.OpFill }
		x.c.fill(x.m, 0, 4, 1)
		require.True(t, x.w.visit(x.q), "which it has the sweeper have, for what is not over")
		require.Same(t, own, x.w.batch)
		x.w.requireClean(t)
		requireOK(t, x.c.one())
		x.r.close()
	})
}

// What a turn leaves is for the queue's own goroutine, which is roused for it.
func TestSweepLeavesTheRest(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, x *sleeper){
		"work that is no burst": func(t *testing.T, x *sleeper) {
			x.b.unfit = func(*backend.Job) bool { return true }
			x.b.slow = true
			x.c.launch(x.p, whole(x.m))
			require.True(t, x.w.visit(x.q))
			requireOK(t, x.c.one())
		},
		"a wait for a fence": func(t *testing.T, x *sleeper) {
			f := newFence(t, x.s, 0)
			x.c.wait(f, 1)
			x.c.launch(x.p, whole(x.m))
			require.True(t, x.w.visit(x.q))
			synctest.Wait()
			require.Zero(t, x.c.left())
			require.NoError(t, x.s.SignalFence(f, 1))
			requireOK(t, x.c.take(2)...)
		},
		"two long turns": func(t *testing.T, x *sleeper) {
			x.b.ends = takes(sweepNanos)
			for range 2 {
				_, asleep := x.asleep()
				require.True(t, asleep, "one may be the host's doing")
				x.c.launch(x.p, whole(x.m))
				require.True(t, x.w.visit(x.q))
				requireOK(t, x.c.one())
			}
			for range aloneFor {
				synctest.Wait()
				require.False(t, x.w.visit(x.q), "it is left alone")
				x.c.launch(x.p, whole(x.m))
				requireOK(t, x.c.one())
			}
			synctest.Wait()
			x.c.mem.Watch()
			x.c.launch(x.p, whole(x.m))
			require.True(t, x.w.visit(x.q))
			requireOK(t, x.c.one())
		},
		"the device has other work": func(t *testing.T, x *sleeper) {
			x.b.slow = true
			x.b.unfit = func(j *backend.Job) bool { return j.Op == backend.OpFill }
			other := x.r.queue(x.r.open("bob"), 16, 64)
			other.fill(buf(t, other.s, 4096), 0, 4096, 1)
			x.c.launch(x.p, whole(x.m))
			require.True(t, x.w.visit(x.q))
			requireOK(t, x.c.one(), other.one())
		},
		"a ring that is broken": func(t *testing.T, x *sleeper) {
			x.c.mem.mu.Lock()
			x.c.mem.broken = true
			x.c.mem.mu.Unlock()
			require.True(t, x.w.visit(x.q))
			<-x.q.done
			require.Equal(t, gpuerr.Protocol, x.c.mem.code)
		},
		"a long replay": func(t *testing.T, x *sleeper) {
			x.b.ends = takes(10 * time.Microsecond)
			l, _, _ := longList(t, x.s, 1000)
			x.c.replayPlain(l)
			began := time.Now()
			require.True(t, x.w.visit(x.q))
			require.Equal(t, maxBurstNanos*time.Nanosecond, time.Since(began), "of which it runs one slice")
			requireOK(t, x.c.one())
			require.Equal(t, 10*time.Millisecond, time.Since(began))
			swept, asleep := x.asleep()
			require.True(t, asleep)
			require.Equal(t, sweptState{alone: aloneFor}, swept)
		},
		"many replays": func(t *testing.T, x *sleeper) {
			x.b.ends = takes(10 * time.Microsecond)
			l, _, _ := longList(t, x.s, 10)
			for range 10 {
				x.c.replayPlain(l)
			}
			began := time.Now()
			require.True(t, x.w.visit(x.q))
			require.Equal(t, 100*time.Microsecond, time.Since(began), "it runs one")
			requireOK(t, x.c.take(10)...)
		},
		"work that fails, and what it spoils": func(t *testing.T, x *sleeper) {
			x.b.ends = func(*backend.Job) backend.End { return backend.End{Outcome: errorOutcome} }
			x.c.launch(x.p, whole(x.m))
			require.True(t, x.w.visit(x.q))
			require.Equal(t, errorOutcome, x.c.one().Outcome)
			synctest.Wait()
			require.False(t, x.s.spoilsForNow(), "the queue is past it")
			require.False(t, x.w.visit(x.q))
			x.b.ends = nil
			x.c.launch(x.p, whole(x.m))
			require.True(t, x.w.visit(x.q))
			requireOK(t, x.c.one())
		},
		"a bug in a look": func(t *testing.T, x *sleeper) {
			x.c.mem.mu.Lock()
			x.c.mem.bugIn = "Watch"
			x.c.mem.mu.Unlock()
			require.True(t, x.w.visit(x.q))
			<-x.q.done
			require.Equal(t, gpuerr.Internal, x.c.mem.code)
		},
		"a bug at the end": func(t *testing.T, x *sleeper) {
			x.c.mem.mu.Lock()
			x.c.mem.bugIn = "Resign"
			x.c.mem.mu.Unlock()
			x.w.release(x.q)
			<-x.q.done
			require.Equal(t, gpuerr.Internal, x.c.mem.code)
		},
		"a bug": func(t *testing.T, x *sleeper) {
			x.c.launch(x.p, whole(x.m))
			x.c.mem.mu.Lock()
			x.c.mem.bugIn = "TakeMany"
			x.c.mem.mu.Unlock()
			require.True(t, x.w.visit(x.q))
			<-x.q.done
			require.Equal(t, gpuerr.Internal, x.c.mem.code)
			require.Nil(t, x.w.scratch, "that of the bug is used no more")
		},
		"no room for completions": func(t *testing.T, x *sleeper) {
			for range 32 {
				x.c.launch(x.p, whole(x.m))
				x.w.visit(x.q)
			}
			x.c.launch(x.p, whole(x.m))
			require.True(t, x.w.visit(x.q), "it is roused to wait for room")
			requireOK(t, x.c.take(33)...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newSleeper(t)
				test(t, x)
				x.r.close()
			})
		})
	}
}

// Who wants something of a queue that is watched does not wait for a sweeper.
func TestSweptQueueIsCalled(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, x *sleeper){
		"cancel": func(t *testing.T, x *sleeper) {
			x.c.launch(x.p, whole(x.m))
			require.NoError(t, x.s.CancelQueue(x.c.h))
			require.Equal(t, cancelledOutcome, x.c.one().Outcome)
		},
		"close": func(t *testing.T, x *sleeper) {
			x.c.launch(x.p, whole(x.m))
			require.NoError(t, x.s.CloseQueue(x.c.h))
			require.Equal(t, revokedOutcome, x.c.one().Outcome)
			require.False(t, x.w.visit(x.q))
			x.w.release(x.q)
			require.Zero(t, x.q.crowd.size())
		},
		"freeze": func(t *testing.T, x *sleeper) {
			require.NoError(t, x.r.dev.Freeze(t.Context()))
			x.c.launch(x.p, whole(x.m))
			require.False(t, x.w.visit(x.q))
			x.w.release(x.q)
			synctest.Wait()
			require.Zero(t, x.c.left())
			x.r.dev.Thaw()
			requireOK(t, x.c.one())
		},
		"what it remembers is released": func(t *testing.T, x *sleeper) {
			x.c.launch(x.p, whole(x.m))
			require.True(t, x.w.visit(x.q))
			requireOK(t, x.c.one())
			require.NoError(t, x.s.CloseProgram(x.p))
			synctest.Wait()
			for _, r := range x.q.burst.memo.slots {
				require.True(t, r == nil || r.job.program == nil)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newSleeper(t)
				test(t, x)
				x.r.close()
			})
		})
	}
}

// A queue that waits for the device looks for its turn before it sleeps, also while its crowd
// is swept.
func TestWatchedHasNothingToDo(t *testing.T) {
	q := &queue{crowd: &crowd{}, scratch: newScratch(0), jobs: make([]*job, 1)}
	require.False(t, q.watched())
	q.crowd.swept.Store(true)
	require.True(t, q.watched())
	q.burst.turn.state.Store(jobReady)
	require.False(t, q.watched())
}

// Queues of usual sizes share the sweeper's buffers, whatever theirs are.
func TestSweepSharesBuffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newSleeper(t)
		other := x.r.queue(x.s, 16, 64)
		q, err := lookup[queue](x.s.handles, other.h)
		require.NoError(t, err)
		synctest.Wait()
		require.False(t, x.w.visit(q))
		x.c.launch(x.p, whole(x.m))
		require.True(t, x.w.visit(x.q))
		requireOK(t, x.c.one())
		batch := x.w.batch
		other.launch(x.p, whole(x.m))
		require.True(t, x.w.visit(q))
		requireOK(t, other.one())
		require.Same(t, batch, x.w.batch)
		x.r.close()
	})
}

// A sweep begins with a look at all queues, that none of them is woken by its client any
// more, and serves none on the way. What it found is served when it comes there.
func TestMuster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newSleeper(t)
		w := &sweeper{queues: []*queue{x.q}}
		x.w.release(x.q)
		require.Equal(t, 1, w.muster())
		swept, asleep := x.asleep()
		require.True(t, asleep)
		require.Equal(t, sweptState{watched: true}, swept)
		x.c.launch(x.p, whole(x.m))
		synctest.Wait()
		require.Zero(t, x.c.left(), "nobody was woken")
		require.Equal(t, 1, w.muster())
		require.Zero(t, x.c.left(), "nobody was served")
		require.True(t, w.visit(x.q))
		requireOK(t, x.c.one())

		// One that is not served any more is woken for what it has.
		x.c.launch(x.p, whole(x.m))
		w.muster()
		w.release(x.q)
		requireOK(t, x.c.one())
		x.r.idleButBuffers(x.s)
		x.r.close()
	})
}

// served is the queue, when its own goroutine has it: no sweeper knows of it before.
func (c *client) served(t *testing.T) *queue {
	t.Helper()
	q, err := lookup[queue](c.s.handles, c.h)
	require.NoError(t, err)
	for began := time.Now(); !q.sleeping.Load(); runtime.Gosched() {
		require.Less(t, time.Since(began), 20*time.Second)
	}
	return q
}

// Whatever the clients and the sweepers do at the same time, nothing is lost and nothing
// is done twice.
func TestSweepBesideClients(t *testing.T) {
	rounds := 300
	if testing.Short() {
		rounds = 50
	}
	r := newRig(t)
	var wg sync.WaitGroup
	end := make(chan struct{})
	var queues []*queue
	for i := range 24 {
		s := r.open([]string{"alice", "bob"}[i%2])
		c, p := r.queue(s, 16, 4096), prog(t, s, "vecadd_f32")
		queues = append(queues, c.served(t))
		bindings := []ring.Binding{whole(buf(t, s, 16)), whole(buf(t, s, 16)), whole(buf(t, s, 16))}
		fill := buf(t, s, 4096)
		random := rand.New(rand.NewPCG(1, uint64(i)))
		wg.Go(func() {
			for range rounds {
				n := 1 + random.IntN(8)
				for range n {
					if random.IntN(8) == 0 {
						c.fill(fill, 0, 4096, 1)
					} else {
						c.launch(p, bindings...)
					}
				}
				for i, done := range c.take(n) {
					if done.Outcome != outcome.Success || done.UserData != c.next-uint64(n)+uint64(i)+1 {
						t.Errorf("entry %d of %d ended %v", done.UserData, c.next, done.Outcome)
						return
					}
				}
			}
		})
	}
	var sweepers sync.WaitGroup
	for i := range 2 {
		random := rand.New(rand.NewPCG(2, uint64(i)))
		sweepers.Go(func() {
			w := &sweeper{}
			for !isClosed(end) {
				for _, q := range queues {
					w.visit(q)
				}
				if random.IntN(4) == 0 {
					for _, q := range queues {
						w.release(q)
					}
				}
				runtime.Gosched()
			}
			for _, q := range queues {
				w.release(q)
			}
		})
	}
	wg.Wait()
	close(end)
	sweepers.Wait()
}
