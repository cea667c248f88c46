package gpu

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
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

// A queue runs what it can itself, in one piece, and tells the same as ever.
func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurstBackend()
		r := newMemRig(t, withBursts(b))
		s := r.open("alice")
		m, f, q := buf(t, s, 4096), newFence(t, s, 0), r.queue(s, 128, 4096)
		p := prog(t, s, "p")
		for i := range uint64(100) {
			q.mem.mu.Lock() // all at once
			for k := range uint64(3) {
				q.mem.entries = append(q.mem.entries, memEntry{Entry: ring.FillEntry(3*i+k, uint64(m), 4*k, 4, uint32(i), 0)})
			}
			q.mem.mu.Unlock()
			q.next = 3 * i
			q.launch(p, whole(m))
			q.signal(f, i+1)
			for k, c := range q.take(5) {
				require.Equal(t, outcome.Success, c.Outcome)
				if k < 3 {
					require.Equal(t, 3*i+uint64(k), c.UserData)
					require.EqualValues(t, time.Microsecond, c.DeviceNanos)
				}
			}
			require.Equal(t, uint32(i)+1, binary.LittleEndian.Uint32(host(t, s, m)))
		}
		require.EqualValues(t, 400, b.inBursts.Load(), "all of it")
		require.Less(t, b.bursts.Load(), int64(300))
		require.Less(t, b.prepared.Load(), int64(320), "a launch once, and each fill of another pattern anew")
		require.EqualValues(t, 100, s.launches.Load())
		require.EqualValues(t, 500, s.ended[outcome.OK].Load())
		require.EqualValues(t, 400*time.Microsecond, s.Budget()[ledger.DeviceTime].Used)
		r.idleButBuffers(s)
		require.NoError(t, s.DestroyBuffer(m))
		q.launch(p, whole(m))
		require.Equal(t, gpuerr.Stale, q.one().Code, "what is remembered is not used")
		r.close()
	})
}

// What a burst does not take goes the other way, in order.
func TestBurstInPart(t *testing.T) {
	b := newBurstBackend()
	b.unfit = func(j *backend.Job) bool { return j.Pattern%5 == 1 }
	b.alone = func(j *backend.Job) bool { return j.Pattern%5 == 3 }
	b.slow = true
	r := newMemRig(t, withBursts(b))
	s := r.open("alice")
	m, q := buf(t, s, 4096), r.queue(s, 64, 64)
	const n = 4000
	go func() {
		for i := range uint64(n) {
			q.fill(m, i%1024*4, 4, uint32(i))
		}
	}()
	for i, c := range q.take(n) {
		require.Equal(t, outcome.Success, c.Outcome)
		require.EqualValues(t, i+1, c.UserData)
	}
	for i := range uint64(1024) {
		require.EqualValues(t, (n-1-i)/1024*1024+i, binary.LittleEndian.Uint32(host(t, s, m)[4*i:]))
	}
	require.Positive(t, b.inBursts.Load())
	require.Less(t, b.inBursts.Load(), int64(n*3/5+1))
	r.idleButBuffers(s)
}

// A trap in a burst poisons its session: what is behind it, in the burst or not, ends
// cancelled.
func TestTrapInBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trap := outcome.Outcome{Kind: outcome.Failed, Cause: outcome.TrapCause, Trap: outcome.Trap{Kind: outcome.Misaligned}}
		b := newBurstBackend()
		b.ends = func(j *backend.Job) backend.End {
			if j.Pattern == 7 {
				return backend.End{Outcome: trap}
			}
			return backend.End{Outcome: outcome.Success}
		}
		r := newMemRig(t, withBursts(b))
		s, other := r.open("alice"), r.open("alice")
		m, q := buf(t, s, 4096), r.queue(s, 64, 64)
		for i := range uint32(10) {
			q.mem.mu.Lock()
			q.mem.entries = append(q.mem.entries, memEntry{Entry: ring.FillEntry(0, uint64(m), 0, 4, i+3, 0)})
			q.mem.mu.Unlock()
		}
		nudge(q.mem.work)
		for i, c := range q.take(10) {
			require.Equal(t, []outcome.Outcome{outcome.Success, trap, poisonedOutcome}[min(max(i-3, 0), 1)+min(max(i-4, 0), 1)], c.Outcome, "%d", i)
		}
		require.Equal(t, trap, s.Poisoned())
		q.fill(m, 0, 4, 1)
		require.Equal(t, poisonedOutcome, q.one().Outcome)
		o, oq := buf(t, other, 4096), r.queue(other, 16, 64)
		oq.fill(o, 0, 4, 1)
		requireOK(t, oq.one())
		r.close()
	})
}

// Limits refuse in a burst what they refuse elsewhere.
func TestBurstLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurstBackend()
		r := newMemRig(t, withBursts(b))
		l := ledger.NoLimits()
		l[ledger.DeviceTime], l[ledger.InFlight] = 5000, 4
		s := r.open("alice", func(a *Attach) { a.Limits = l })
		m, q := buf(t, s, 4096), r.queue(s, 64, 64)
		for i := range 5 {
			q.fill(m, 0, 4, uint32(i))
			requireOK(t, q.one())
		}
		q.fill(m, 0, 4, 9)
		c := q.one()
		require.Equal(t, gpuerr.Quota, c.Code)
		require.EqualValues(t, 5, b.inBursts.Load())
		r.close()
	})
}

// A burst that does not end costs the device, and nobody is told that its work is done.
func TestStuckBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurstBackend()
		stuck := make(chan struct{})
		b.within = func() { <-stuck }
		r := newMemRig(t, withBursts(b))
		s, other := r.open("alice"), r.open("bob")
		m, q := buf(t, s, 4096), r.queue(s, 16, 64)
		o, oq := buf(t, other, 4096), r.queue(other, 16, 64)
		q.fill(m, 0, 4, 1)
		synctest.Wait()
		oq.fill(o, 0, 4, 1)
		closed := make(chan error, 1)
		go func() { closed <- s.DestroyBuffer(m) }()
		began := time.Now()
		require.Equal(t, lostOutcome, oq.one().Outcome)
		require.Less(t, time.Since(began), r.dev.cfg.HangBound+3*watchTick)
		require.True(t, isClosed(r.dev.lost))
		time.Sleep(time.Second)
		require.Empty(t, closed, "the memory is in use")
		require.Zero(t, q.left())
		close(stuck)
		require.NoError(t, <-closed)
		require.Equal(t, lostOutcome, q.one().Outcome)
		r.close()
	})
}

// The share of the device is the same for who runs bursts, whatever the number of its
// queues, and for who does not; and by weight.
func TestBurstsAreFair(t *testing.T) {
	for name, unfit := range map[string]bool{"bursts beside bursts": false, "bursts beside other work": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBurstBackend()
				b.slow = true
				b.unfit = func(j *backend.Job) bool { return unfit && j.Pattern == 1 }
				var mu sync.Mutex
				var used [2]time.Duration
				b.ends = func(j *backend.Job) backend.End {
					time.Sleep(10 * time.Microsecond)
					mu.Lock()
					used[j.Pattern] += 10 * time.Microsecond
					mu.Unlock()
					return backend.End{Outcome: outcome.Success, DeviceTime: 10 * time.Microsecond}
				}
				r := newMemRig(t, withBursts(b))
				var wg sync.WaitGroup
				stop := make(chan struct{})
				flood := func(s *Session, pattern uint32) {
					m, q := buf(t, s, 4096), r.queue(s, 256, 64)
					wg.Go(func() {
						for range 100 {
							q.fill(m, 0, 4, pattern)
						}
						for !isClosed(stop) {
							q.fill(m, 0, 4, pattern)
							q.one()
						}
					})
				}
				alice := r.open("alice", func(a *Attach) { a.Weight = 1 })
				bob := r.open("bob", func(a *Attach) { a.Weight = 2 })
				for range 3 {
					flood(alice, 0)
				}
				flood(bob, 1)
				time.Sleep(200 * time.Millisecond)
				mu.Lock()
				had := used
				mu.Unlock()
				close(stop)
				require.InDelta(t, 2, float64(had[1])/float64(had[0]), 0.4, "%v", had)
				wg.Wait()
				require.NoError(t, bob.Close())
				require.NoError(t, alice.Close())
				r.close()
			})
		})
	}
}

// Whatever is submitted: bursts, or not, or a device that does now this and now that,
// come to the same.
func TestBurstsAgainstNone(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 200).Draw(rt, "entries")
		seed := rapid.Uint64().Draw(rt, "seed")
		var told [3][]ring.Completion
		var left [3][]byte
		for i := range told {
			b := newBurstBackend()
			b.without = i == 0
			if i == 2 {
				odd := rand.New(rand.NewPCG(seed, 5))
				b.unfit = func(*backend.Job) bool { return odd.IntN(4) == 0 }
				b.alone = func(*backend.Job) bool { return odd.IntN(8) == 0 }
				b.slow = true
			}
			b.ends = func(j *backend.Job) backend.End {
				if j.Pattern == 6 {
					return backend.End{Outcome: errorOutcome}
				}
				return backend.End{Outcome: outcome.Success, DeviceTime: time.Microsecond}
			}
			told[i], left[i] = submitRandom(rt, b, seed, n)
		}
		require.Equal(rt, told[0], told[1])
		require.Equal(rt, told[0], told[2])
		for i := 1; i < len(left); i++ {
			for at := range left[0] {
				require.Equal(rt, left[0][at], left[i][at], "byte %d of device %d", at, i)
			}
		}
	})
}

// submitRandom submits what the seed says, and returns the completions and the memory.
func submitRandom(rt *rapid.T, b *burstBackend, seed uint64, n int) (told []ring.Completion, memory []byte) {
	fn, err := fake.New(fake.Options{})
	require.NoError(rt, err)
	cfg := Config{Backend: b, DMA: fn.Grants().DMA}
	if !b.without {
		cfg.Backend = &burster{b}
	}
	dev, err := New(cfg)
	require.NoError(rt, err)
	dev.newRing = newTestRing
	r := &rig{t: rt, dev: dev, fn: fn, mem: true}
	defer r.close()
	s := r.open("alice")
	// Nothing but the order of making decides about handles, save for their generation.
	objects := []Handle{0: 12345, 1: buf(rt, s, 4096), 2: buf(rt, s, 8192), 3: buf(rt, s, 4096), 4: prog(rt, s, "p"), 5: newFence(rt, s, 0)}
	draw := rand.New(rand.NewPCG(seed, 1))
	q := r.queue(s, 64, 4096)
	value := uint64(0)
	pending := 0
	q.mem.hide() // what failed work spoils depends on what was published before
	collect := func() {
		q.mem.show()
		for _, c := range q.take(pending) {
			c.DeviceNanos = 0
			told = append(told, c)
		}
		pending = 0
		q.mem.hide()
	}
	for range n {
		buffer := func() uint64 { return uint64(objects[draw.IntN(7)%4]) }
		switch draw.IntN(12) {
		case 0:
			value += draw.Uint64N(2)
			q.signal(objects[5], value)
		case 1:
			q.push(ring.NopEntry(0), nil, nil)
		case 2:
			q.wait(objects[5], value)
		case 3, 4, 5:
			p := objects[4]
			if draw.IntN(9) == 0 {
				p = objects[1]
			}
			q.push(ring.LaunchEntry(0, uint64(p), ring.Dim3{X: draw.Uint32N(2), Y: 1, Z: 1}, ring.Dim3{X: 32, Y: 1, Z: 1}, 0, 0), []ring.Binding{{Buffer: buffer(), Off: 4 * draw.Uint64N(4), Len: 4 * draw.Uint64N(3)}}, nil)
		case 6, 7:
			q.push(ring.CopyEntry(0, buffer(), 4*draw.Uint64N(8), buffer(), 4*draw.Uint64N(8), 4*draw.Uint64N(4), 0), nil, nil)
		case 8:
			if draw.IntN(10) > 0 {
				continue
			}
			collect() // that it is gone shows at a known place
			i := 1 + draw.IntN(3)
			require.NoError(rt, s.DestroyBuffer(objects[i]))
			objects[i] = buf(rt, s, 4096)
			continue
		default:
			q.fill(Handle(buffer()), 4*draw.Uint64N(8), 4*draw.Uint64N(4), draw.Uint32N(7))
		}
		pending++
		if draw.IntN(20) == 0 || pending == 60 {
			collect()
		}
	}
	collect()
	for _, h := range objects[1:4] {
		memory = append(memory, host(rt, s, h)...)
	}
	require.Zero(rt, s.Budget()[ledger.InFlight].Used+s.Budget()[ledger.InFlight].Reserved)
	return told, memory
}

// Buffers, programs, queues and sessions go while bursts use them. What DestroyBuffer or
// Close has returned for is not touched: its memory is gone (the access would crash), or
// zero and somebody else's.
func TestBurstsWhileThingsGo(t *testing.T) {
	b := newBurstBackend()
	r := newMemRig(t, withBursts(b))
	var wg sync.WaitGroup
	end := time.Now().Add(400 * time.Millisecond)
	for i := range 4 {
		wg.Go(func() {
			draw := rand.New(rand.NewPCG(uint64(i), 1))
			for round := 0; time.Now().Before(end); round++ {
				burstsAndGone(t, r, draw, fmt.Sprint("tenant ", i%2))
			}
		})
	}
	wg.Wait()
	require.Positive(t, b.inBursts.Load())
	t.Logf("%d jobs in %d bursts", b.inBursts.Load(), b.bursts.Load())
	require.NoError(t, r.dev.Check())
}

func burstsAndGone(t *testing.T, r *rig, draw *rand.Rand, tenant string) {
	s := r.open(tenant)
	bytes := []uint64{4096, 2 << 20}[draw.IntN(2)] // carved, or with a mapping of its own
	m, keep := buf(t, s, bytes), buf(t, s, 4096)
	p, q := prog(t, s, "p"), r.queue(s, 64, 4096)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; !isClosed(stop); n++ {
			q.fill(m, 0, min(bytes, 16<<10), 0xabababab) // more would keep the device for longer than it says
			q.launch(p, whole(m))
			q.fill(keep, 0, 4, 1)
			if n%8 == 7 {
				q.mem.mu.Lock()
				closed := q.mem.code != gpuerr.None
				q.mem.read, q.mem.unread = q.mem.completed, nil
				q.mem.mu.Unlock()
				nudge(q.mem.work)
				if closed {
					return
				}
				time.Sleep(10 * time.Microsecond)
			}
		}
	})
	time.Sleep(time.Duration(draw.IntN(300)) * time.Microsecond)
	switch draw.IntN(4) {
	case 0:
		require.NoError(t, s.DestroyBuffer(m))
		again := buf(t, s, bytes)
		for range 20 {
			require.Equal(t, -1, firstNonZero(host(t, s, again)))
			time.Sleep(time.Microsecond)
		}
	case 1:
		require.NoError(t, s.CloseProgram(p))
		launched := s.launches.Load()
		time.Sleep(100 * time.Microsecond)
		require.Equal(t, launched, s.launches.Load())
	case 2:
		require.NoError(t, s.CancelQueue(q.h))
		require.NoError(t, s.CloseQueue(q.h))
	}
	require.NoError(t, s.Close())
	close(stop)
	wg.Wait()
}
