package gpu

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"capgpu/ddf/fake"
	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

// longFills has entries of lists take 10 µs, and fills, which go by Submit, so long, without
// holding up who submits.
func (b *burstBackend) longFills(long time.Duration) {
	b.slow = true
	b.unfit = func(j *backend.Job) bool { return j.Op == backend.OpFill }
	b.ends = func(j *backend.Job) backend.End {
		took := 10 * time.Microsecond
		if j.Op == backend.OpFill {
			took = long
		}
		time.Sleep(took)
		return backend.End{Outcome: outcome.Success, DeviceTime: took}
	}
}

// takes makes every entry take so long.
func takes(took time.Duration) func(*backend.Job) backend.End {
	return func(*backend.Job) backend.End {
		time.Sleep(took)
		return backend.End{Outcome: outcome.Success, DeviceTime: took}
	}
}

// longList records a list of n launches that add 1 to the first word of a buffer.
func longList(t tb, s *Session, n int) (l, b, p Handle) {
	t.Helper()
	b, p = buf(t, s, 4096), prog(t, s, "p")
	var rec recorder
	for range n {
		rec.launch(p, nil, whole(b))
	}
	return rec.record(t, s), b, p
}

// A replay is run by its queue, in slices, and counts as one that the device ran.
func TestPlay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurstBackend()
		b.ends = takes(10 * time.Microsecond)
		r := newMemRig(t, withLists(b))
		s := r.open("alice")
		l, m, _ := longList(t, s, 50)
		q, f := r.queue(s, 16, 64), newFence(t, s, 0)
		for range 3 {
			q.replayPlain(l)
		}
		q.signal(f, 1)
		for i, c := range q.take(4) {
			require.Equal(t, outcome.Success, c.Outcome)
			require.EqualValues(t, i+1, c.UserData)
			if i < 3 {
				require.EqualValues(t, 500*time.Microsecond, c.DeviceNanos)
			}
		}
		require.EqualValues(t, 150, wordAt(host(t, s, m), 0))
		require.EqualValues(t, 150, b.inSlices.Load())
		require.EqualValues(t, 15, b.slices.Load(), "of 100 µs each")
		require.EqualValues(t, 150, s.launches.Load())
		require.EqualValues(t, 1500*time.Microsecond, s.Budget()[ledger.DeviceTime].Used)
		st, err := s.WaitFence(t.Context(), f, 1)
		require.NoError(t, err)
		require.Equal(t, outcome.Success, st.Outcome)
		r.idleButBuffers(s)
		require.NoError(t, s.DestroyBuffer(m))
		q.replayPlain(l)
		require.NotZero(t, q.one().Code, "it is stale")
		r.close()
	})
}

// A replay that has ended is told before one that follows gets far, and short ones
// together.
func TestPlayTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurstBackend()
		b.ends = takes(10 * time.Microsecond)
		r := newMemRig(t, withLists(b))
		s := r.open("alice")
		short, _, _ := longList(t, s, 2)
		long, _, _ := longList(t, s, 1000)
		q := r.queue(s, 16, 64)
		q.mem.mu.Lock() // all at once
		for i, l := range append(slices.Repeat([]Handle{short}, 11), long) {
			q.mem.entries = append(q.mem.entries, memEntry{Entry: ring.ReplayEntry(uint64(i), uint64(l), 0)})
		}
		q.mem.mu.Unlock()
		nudge(q.mem.work)
		began := time.Now()
		synctest.Wait()
		requireOK(t, q.take(10)...)
		require.Equal(t, seenSoon, time.Since(began), "as soon as they have had that much")
		requireOK(t, q.one())
		require.Equal(t, seenSoon+220*time.Microsecond, time.Since(began), "after slices of the next")
		requireOK(t, q.one())
		require.Equal(t, 10220*time.Microsecond, time.Since(began))
		r.close()
	})
}

// What ended before a long replay is told while that runs, whatever it was.
func TestPlayTellsWhatWasBefore(t *testing.T) {
	for name, first := range map[string]func(m Handle) ring.Entry{
		"fill": func(m Handle) ring.Entry { return ring.FillEntry(0, uint64(m), 0, 4, 1, 0) },
		"nop":  func(Handle) ring.Entry { return ring.NopEntry(0) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBurstBackend()
				b.ends = takes(10 * time.Microsecond)
				r := newMemRig(t, withLists(b))
				s := r.open("alice")
				long, m, _ := longList(t, s, 1000)
				q := r.queue(s, 16, 64)
				q.mem.mu.Lock() // both at once
				q.mem.entries = append(q.mem.entries, memEntry{Entry: first(m)}, memEntry{Entry: ring.ReplayEntry(1, uint64(long), 0)})
				q.mem.mu.Unlock()
				nudge(q.mem.work)
				began := time.Now()
				requireOK(t, q.one())
				require.Less(t, time.Since(began), 2*seenSoon)
				requireOK(t, q.one())
				require.GreaterOrEqual(t, time.Since(began), 10*time.Millisecond)
				r.close()
			})
		})
	}
}

// How many entries a slice ran is the device's word, and not believed.
func TestPlayDoubtsCounts(t *testing.T) {
	for name, counts := range map[string]func(n int) int{
		"none, and ok": func(int) int { return 0 },
		"too many":     func(int) int { return 51 },
		"negative":     func(int) int { return -1 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBurstBackend()
				b.ends, b.counts = takes(10*time.Microsecond), counts
				r := newMemRig(t, withLists(b))
				s := r.open("alice")
				l, _, _ := longList(t, s, 50)
				q := r.queue(s, 16, 64)
				q.replayPlain(l)
				require.Equal(t, errorOutcome, q.one().Outcome)
				r.close()
			})
		})
	}
}

// Whatever is in a list and whatever the device leaves to Submit: it comes to the same as
// with a device that runs lists by Submit only.
func TestPlayAgainstSubmit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		n := rapid.IntRange(1, 60).Draw(rt, "entries")
		var told [3][]ring.Completion
		var left [3][]byte
		var launches [3]uint64
		for i := range told {
			b := newBurstBackend()
			b.without = i == 0
			if i == 2 {
				odd := rand.New(rand.NewPCG(seed, 5))
				b.alone = func(*backend.Job) bool { return odd.IntN(30) == 0 }
				b.slow = true
			}
			b.ends = func(j *backend.Job) backend.End {
				switch {
				case j.Op == backend.OpFill && j.Pattern == 6:
					return backend.End{Outcome: errorOutcome}
				case j.Op == backend.OpFill && j.Pattern == 7:
					return backend.End{Outcome: someTrap}
				}
				return backend.End{Outcome: outcome.Success, DeviceTime: 20 * time.Microsecond}
			}
			told[i], left[i], launches[i] = playRandom(rt, b, seed, n)
		}
		for i := 1; i < len(told); i++ {
			require.Equal(rt, told[0], told[i])
			require.True(rt, slices.Equal(left[0], left[i]), "memory of device %d", i)
			require.Equal(rt, launches[0], launches[i])
		}
	})
}

// playRandom records lists and replays them among other work, as the seed says.
func playRandom(rt *rapid.T, b *burstBackend, seed uint64, n int) (told []ring.Completion, memory []byte, launches uint64) {
	var cfg Config
	withLists(b)(&cfg, nil)
	fn, err := fake.New(fake.Options{})
	require.NoError(rt, err)
	cfg.DMA = fn.Grants().DMA
	dev, err := New(cfg)
	require.NoError(rt, err)
	dev.newRing = newTestRing
	r := &rig{t: rt, dev: dev, fn: fn, mem: true}
	defer r.close()
	s := r.open("alice")
	draw := rand.New(rand.NewPCG(seed, 1))
	x, y, p := buf(rt, s, 4096), buf(rt, s, 4096), prog(rt, s, "p")
	var all [3]Handle
	for i := range all {
		var rec recorder
		for range n {
			switch draw.IntN(8) {
			case 0, 1, 2:
				rec.launch(p, nil, piece(x, 4*draw.Uint64N(8), 4))
			case 3, 4:
				rec.copy(y, 4*draw.Uint64N(8), x, 4*draw.Uint64N(8), 4*(1+draw.Uint64N(4)))
			case 5:
				rec.copy(x, 4*draw.Uint64N(8), y, 4*draw.Uint64N(8), 4*(1+draw.Uint64N(4)))
			default:
				pattern := draw.Uint32N(6)
				if draw.IntN(40) == 0 {
					pattern = 6 + draw.Uint32N(2)
				}
				rec.fill(x, 4*draw.Uint64N(8), 4, pattern)
			}
		}
		all[i] = rec.record(rt, s)
	}
	q := r.queue(s, 64, 4096)
	const work = 30
	q.mem.hide() // what failed work spoils depends on what was published before
	for k := range work {
		switch draw.IntN(6) {
		case 0:
			q.fill(x, 4*draw.Uint64N(8), 4, uint32(k)+10)
		case 1:
			q.push(ring.NopEntry(0), nil, nil)
		default:
			q.replayPlain(all[draw.IntN(len(all))])
		}
	}
	q.mem.show()
	for _, c := range q.take(work) {
		c.DeviceNanos = 0
		told = append(told, c)
	}
	memory = append(slices.Clone(host(rt, s, x)), host(rt, s, y)...)
	require.Zero(rt, s.Budget()[ledger.InFlight].Used+s.Budget()[ledger.InFlight].Reserved)
	return told, memory, s.launches.Load()
}

// Whoever else wants the device has it between two slices of a long replay, and its share
// of it.
func TestPlayIsFair(t *testing.T) {
	for name, unfit := range map[string]bool{"beside bursts": false, "beside other work": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBurstBackend()
				b.slow = true
				b.unfit = func(j *backend.Job) bool { return unfit && j.Op == backend.OpFill }
				b.ends = takes(10 * time.Microsecond)
				r := newMemRig(t, withLists(b))
				alice, bob := r.open("alice"), r.open("bob")
				l, _, _ := longList(t, alice, 1000)
				q := r.queue(alice, 16, 64)
				m, o := buf(t, bob, 4096), r.queue(bob, 16, 64)
				q.replayPlain(l)
				q.replayPlain(l)
				time.Sleep(time.Millisecond)
				var worst time.Duration
				n, began := 0, time.Now()
				for ; time.Since(began) < 10*time.Millisecond; n++ {
					asked := time.Now()
					o.fill(m, 0, 4, 1)
					requireOK(t, o.one())
					worst = max(worst, time.Since(asked))
				}
				require.LessOrEqual(t, worst, 130*time.Microsecond, "a slice and the work itself")
				require.Greater(t, n, 10*1000/130)
				alone := time.Now()
				requireOK(t, q.take(2)...)
				require.Less(t, time.Since(alone), 20*time.Millisecond, "it went on beside the other")
				r.close()
			})
		})
	}
}

// A replay is stopped at its deadline, which is that of all of it and counts what it had
// of the device.
func TestPlayDeadline(t *testing.T) {
	for _, beside := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBurstBackend()
			b.slow = true
			b.ends = takes(10 * time.Microsecond)
			r := newMemRig(t, withLists(b))
			alice, bob := r.open("alice"), r.open("bob")
			l, m, _ := longList(t, alice, 1000)
			q := r.queue(alice, 16, 64)
			o, other := buf(t, bob, 4096), r.queue(bob, 16, 64)
			q.push(ring.ReplayEntry(0, uint64(l), 1000), nil, nil)
			q.fill(m, 4, 4, 9)
			if beside {
				for range 100 {
					other.fill(o, 0, 4, 1)
					requireOK(t, other.one())
				}
			}
			require.Equal(t, hangOutcome, q.one().Outcome)
			require.EqualValues(t, 100, wordAt(host(t, alice, m), 0), "as far as that goes")
			require.EqualValues(t, 100, alice.launches.Load())
			requireOK(t, q.one())
			require.Zero(t, r.dev.Status("alice").Tenants[0].Strikes, "it asked for less than everybody has")
			q.push(ring.ReplayEntry(0, uint64(l), 10_000), nil, nil)
			requireOK(t, q.one())
			r.close()
		})
	}
}

// Who takes away what a replay uses, or the queue it is in, waits for a slice of it.
func TestPlayStops(t *testing.T) {
	for name, c := range map[string]struct {
		stop func(s *Session, q *client, b, p, l Handle) error
		how  outcome.Outcome
	}{
		"buffer":  {func(s *Session, _ *client, b, _, _ Handle) error { return s.DestroyBuffer(b) }, revokedOutcome},
		"program": {func(s *Session, _ *client, _, p, _ Handle) error { return s.CloseProgram(p) }, revokedOutcome},
		"list":    {func(s *Session, _ *client, _, _, l Handle) error { return s.CloseList(l) }, revokedOutcome},
		"cancel":  {func(s *Session, q *client, _, _, _ Handle) error { return s.CancelQueue(q.h) }, cancelledOutcome},
		"queue":   {func(s *Session, q *client, _, _, _ Handle) error { return s.CloseQueue(q.h) }, revokedOutcome},
		"session": {func(s *Session, _ *client, _, _, _ Handle) error { return s.Close() }, revokedOutcome},
		"poison": {func(s *Session, _ *client, _, _, _ Handle) error {
			s.setPoisoned(someTrap)
			return nil
		}, poisonedOutcome},
		"loss": {func(s *Session, _ *client, _, _, _ Handle) error { s.dev.Gone("unplugged"); return nil }, lostOutcome},
	} {
		for _, waits := range []bool{false, true} { // for its turn, while another has the device
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBurstBackend()
					b.longFills(2 * time.Millisecond)
					r := newMemRig(t, withLists(b))
					s, bob := r.open("alice"), r.open("bob")
					l, m, p := longList(t, s, 1000)
					o, busy := buf(t, bob, 4096), r.queue(bob, 16, 64)
					q := r.queue(s, 16, 64)
					q.replayPlain(l)
					q.replayPlain(l)
					time.Sleep(1050 * time.Microsecond)
					if waits {
						busy.fill(o, 0, 4, 1)
						time.Sleep(200 * time.Microsecond)
					}
					ran, began := b.inSlices.Load(), time.Now()
					require.NoError(t, c.stop(s, q, m, p, l))
					if name != "buffer" || !waits { // it may be in the job that the device has
						require.LessOrEqual(t, time.Since(began), 200*time.Microsecond)
					}
					require.Equal(t, c.how, q.one().Outcome)
					if next := q.one(); next.Outcome != c.how { // it was not begun yet
						require.Equal(t, gpuerr.Stale, next.Code)
					}
					if !waits {
						require.LessOrEqual(t, time.Since(began), 200*time.Microsecond)
						require.LessOrEqual(t, b.inSlices.Load(), ran+20, "two slices: a buffer waits for the turn as well")
					}
					require.EqualValues(t, b.inSlices.Load(), s.launches.Load())
					if name != "loss" {
						if waits {
							requireOK(t, busy.one())
						}
						busy.fill(o, 0, 4, 1)
						requireOK(t, busy.one())
						require.NoError(t, r.dev.Check())
					}
					r.close()
				})
			})
		}
	}
}

// Who closes what a replay uses while that is in a slice waits for no other work.
func TestPlayClosesBeforeOthers(t *testing.T) {
	for name, closes := range map[string]func(s *Session, p, l Handle) error{
		"program": func(s *Session, p, _ Handle) error { return s.CloseProgram(p) },
		"list":    func(s *Session, _, l Handle) error { return s.CloseList(l) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBurstBackend()
				b.longFills(50 * time.Millisecond)
				r := newMemRig(t, withLists(b))
				s, bob := r.open("alice"), r.open("bob")
				l, _, p := longList(t, s, 1000)
				o, busy, q := buf(t, bob, 4096), r.queue(bob, 16, 64), r.queue(s, 16, 64)
				q.replayPlain(l)
				time.Sleep(1050 * time.Microsecond) // within a slice
				busy.fill(o, 0, 4, 1)
				busy.fill(o, 0, 4, 1)
				synctest.Wait() // they wait for it
				began := time.Now()
				require.NoError(t, closes(s, p, l))
				require.LessOrEqual(t, time.Since(began), 100*time.Microsecond)
				require.Equal(t, revokedOutcome, q.one().Outcome)
				requireOK(t, busy.take(2)...)
				r.close()
			})
		})
	}
}

// What the device leaves to Submit is the rest of the list, with what is left of its time.
func TestPlayRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurstBackend()
		b.slow = true
		b.ends = takes(10 * time.Microsecond)
		b.alone = func(j *backend.Job) bool { return j.Op == backend.OpCopy }
		r := newMemRig(t, withLists(b))
		s := r.open("alice")
		m, p := buf(t, s, 4096), prog(t, s, "p")
		var rec recorder
		for i := range 40 {
			rec.launch(p, nil, whole(m))
			if i == 19 {
				rec.copy(m, 64, m, 0, 4)
			}
		}
		l := rec.record(t, s)
		q := r.queue(s, 16, 64)
		for i := range uint32(3) {
			q.replayPlain(l)
			c := q.one()
			requireOK(t, c)
			require.EqualValues(t, 410*time.Microsecond, c.DeviceNanos)
			require.EqualValues(t, 40*(i+1), wordAt(host(t, s, m), 0))
			require.EqualValues(t, 40*i+20, wordAt(host(t, s, m), 16))
			require.EqualValues(t, 20*(i+1), b.inSlices.Load())
			require.EqualValues(t, 40*(i+1), s.launches.Load())
			require.EqualValues(t, 410*time.Microsecond*time.Duration(i+1), s.Budget()[ledger.DeviceTime].Used)
		}
		r.idleButBuffers(s)
		r.close()
	})
}

// A slice that does not end costs the device, and nobody is told that its work is done.
func TestStuckSlice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurstBackend()
		stuck := make(chan struct{})
		b.within = func() { <-stuck }
		r := newMemRig(t, withLists(b))
		s := r.open("alice")
		l, m, _ := longList(t, s, 4)
		q := r.queue(s, 16, 64)
		q.replayPlain(l)
		closed := make(chan error, 1)
		synctest.Wait()
		go func() { closed <- s.DestroyBuffer(m) }()
		<-r.dev.lost
		time.Sleep(time.Second)
		require.Empty(t, closed, "the memory is in use")
		require.Zero(t, q.left())
		close(stuck)
		require.NoError(t, <-closed)
		require.Equal(t, lostOutcome, q.one().Outcome)
		r.close()
	})
}
