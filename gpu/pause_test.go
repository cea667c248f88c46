package gpu

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/outcome"
)

// pauseBackend is a device whose submitted jobs end when the test says so, and whose bursts
// take so long. It panics when something runs that should stand still, or the other way.
type pauseBackend struct {
	*handBackend
	deaf bool          // does not stand still by itself
	took time.Duration // a burst

	still   func()
	asked   bool
	stands  bool
	pauses  int
	resumes int
	within  func() // called in each burst
}

// passWait is the longest that short work may wait for a job that has less of the device.
const passWait = 3 * passMost * time.Nanosecond

// isLong is the pattern of fills that are not for bursts.
const isLong = 1

func newPauseBackend() *pauseBackend {
	return &pauseBackend{handBackend: newHandBackend(), took: 10 * time.Microsecond}
}

func (b *pauseBackend) Prepare(job *backend.Job, _ backend.Ready) (backend.Ready, int64, bool) {
	return job, 1000, job.Pattern != isLong
}

func (b *pauseBackend) Burst(_ backend.JobID, jobs []backend.Ready, ends []backend.End) int {
	b.mu.Lock()
	if len(b.live) > 0 && !b.stands {
		panic("a burst beside work that does not stand still")
	}
	b.mu.Unlock()
	time.Sleep(b.took)
	if b.within != nil {
		b.within()
	}
	for i := range jobs {
		ends[i] = backend.End{Outcome: outcome.Success, DeviceTime: b.took / time.Duration(len(jobs))}
	}
	return len(jobs)
}

func (b *pauseBackend) Submit(j *backend.Job) error {
	b.mu.Lock()
	if b.stands {
		panic("work is sent to a device that stands still")
	}
	b.mu.Unlock()
	return b.handBackend.Submit(j)
}

func (b *pauseBackend) Pause(still func()) {
	b.mu.Lock()
	if b.asked {
		panic("a pause in a pause")
	}
	b.asked, b.still = true, still
	b.pauses++
	b.mu.Unlock()
	if !b.deaf {
		b.stand()
	}
}

// stand has the device stand still.
func (b *pauseBackend) stand() {
	b.mu.Lock()
	still := b.still
	b.stands, b.still = b.asked, nil
	b.mu.Unlock()
	if still != nil {
		still()
	}
}

func (b *pauseBackend) Resume() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.asked {
		panic("an end of no pause")
	}
	b.asked, b.stands, b.still = false, false, nil
	b.resumes++
}

// counted is how often it was paused and went on.
func (b *pauseBackend) counted() (pauses, resumes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pauses, b.resumes
}

// had is what a session has paid for.
func had(s *Session) time.Duration {
	e := s.dev.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Duration(s.flow.virtual)
}

// paused is whether it is now.
func (b *pauseBackend) paused() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stands
}

var _ backend.Pauser = (*pauseBackend)(nil)

// pauseRig has a job of alice's that does not end in the device, and bob beside it.
type pauseRig struct {
	*rig
	b            *pauseBackend
	alice, bob   *Session
	a, m         Handle // their buffers
	busy, victim *client
	began        time.Time // the job
}

func newPauseRig(t *testing.T, deadline time.Duration, change func(*pauseBackend)) *pauseRig {
	b := newPauseBackend()
	if change != nil {
		change(b)
	}
	r := &pauseRig{rig: newMemRig(t, withBackend(b), manyStrikes), b: b}
	r.alice, r.bob = r.open("alice", func(a *Attach) { a.MaxDeadline = deadline }), r.open("bob")
	r.a, r.m = buf(t, r.alice, 4096), buf(t, r.bob, 4096)
	r.busy, r.victim = r.queue(r.alice, 16, 0), r.queue(r.bob, 16, 0)
	r.began = time.Now()
	r.busy.fill(r.a, 0, 4, isLong)
	b.nth(t, 0)
	synctest.Wait()
	return r
}

// short has bob do short work, which is done within so long.
func (r *pauseRig) short(n int, within time.Duration) {
	r.t.Helper()
	for range n {
		start := time.Now()
		r.victim.fill(r.m, 0, 4, 2)
		c := r.victim.one()
		require.Equal(r.t, outcome.Success, c.Outcome)
		require.LessOrEqual(r.t, time.Since(start), within)
	}
}

// Short work goes before a job that does not end, whose deadline does not pass meanwhile.
func TestTurnsPassALongJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const deadline = 50 * time.Millisecond
		r := newPauseRig(t, deadline, nil)
		r.b.took = time.Millisecond
		r.short(1, r.b.took+passWait)
		time.Sleep(20 * time.Millisecond) // which alice has had, and bob has not
		r.short(15, r.b.took)
		require.False(t, r.b.paused(), "nobody has short work now")
		require.Equal(t, hangOutcome, r.busy.one().Outcome)
		took := time.Since(r.began)
		require.Equal(t, deadline+16*r.b.took, took)
		pauses, resumes := r.b.counted()
		require.Equal(t, pauses, resumes)
		require.Equal(t, deadline, had(r.alice), "what it pays for")
		require.NoError(t, r.dev.Check())
		r.close()
	})
}

// The two have the device in equal parts, in pieces of some 100 µs.
func TestPausesAreFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPauseRig(t, time.Hour, nil)
		r.b.took = 70 * time.Microsecond
		for start := time.Now(); time.Since(start) < 100*time.Millisecond; {
			r.short(1, passWait)
		}
		require.InDelta(t, 50*time.Millisecond, had(r.bob), float64(3*time.Millisecond))
		pauses, _ := r.b.counted()
		require.Greater(t, pauses, 200)
		r.close()
	})
}

// A device that stands still only when the job has ended is as one that has no pauses.
func TestDeafDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPauseRig(t, time.Hour, func(b *pauseBackend) { b.deaf = true })
		r.victim.fill(r.m, 0, 4, 2)
		time.Sleep(10 * time.Millisecond)
		require.Zero(t, r.victim.left())
		pauses, _ := r.b.counted()
		require.Equal(t, 1, pauses)
		r.b.finish(r.b.nth(t, 0), outcome.Success, 10*time.Millisecond)
		r.b.stand()
		requireOK(t, r.busy.one(), r.victim.one())
		_, resumes := r.b.counted()
		require.Equal(t, 1, resumes)

		// And whose turn is cancelled before gets none.
		r.busy.fill(r.a, 0, 4, isLong)
		id := r.b.nth(t, 1)
		r.victim.fill(r.m, 0, 4, 2)
		time.Sleep(time.Second)
		pauses, _ = r.b.counted()
		require.Equal(t, 2, pauses)
		require.NoError(t, r.bob.CancelQueue(r.victim.h))
		require.Equal(t, cancelledOutcome, r.victim.one().Outcome)
		r.b.stand()
		synctest.Wait()
		_, resumes = r.b.counted()
		require.Equal(t, 2, resumes, "nobody wants it")
		r.b.finish(id, outcome.Success, time.Second)
		requireOK(t, r.busy.one())
		r.close()
	})
}

// A tenant's short work waits for its own jobs: it may read what they write.
func TestOwnWorkIsNotPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPauseRig(t, time.Hour, nil)
		other := r.queue(r.open("alice"), 16, 0)
		other.fill(buf(t, other.s, 4096), 0, 4, 2)
		time.Sleep(100 * time.Millisecond)
		require.Zero(t, other.left())
		pauses, _ := r.b.counted()
		require.Zero(t, pauses)
		r.b.finish(r.b.nth(t, 0), outcome.Success, 100*time.Millisecond)
		requireOK(t, r.busy.one(), other.one())
		r.close()
	})
}

// Everything that ends a job ends one that stands still.
func TestEndsInAPause(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(r *pauseRig)
		how  outcome.Outcome
	}{
		{"cancelled", func(r *pauseRig) { go func() { require.NoError(r.t, r.alice.CancelQueue(r.busy.h)) }() }, cancelledOutcome},
		{"closed", func(r *pauseRig) { go func() { require.NoError(r.t, r.alice.CloseQueue(r.busy.h)) }() }, revokedOutcome},
		{"done all the same", func(r *pauseRig) { r.b.finish(r.b.nth(r.t.(*testing.T), 0), outcome.Success, 0) }, outcome.Success},
		{"gone", func(r *pauseRig) { r.b.sink.DeviceGone("test") }, lostOutcome},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newPauseRig(t, time.Hour, nil)
				time.Sleep(10 * time.Millisecond)
				in, out := make(chan struct{}), make(chan struct{})
				r.b.within = func() {
					r.b.within = nil
					close(in)
					<-out
				}
				r.victim.fill(r.m, 0, 4, 2)
				<-in
				require.True(t, r.b.paused())
				tc.end(r)
				synctest.Wait()
				close(out)
				require.Equal(t, tc.how, r.busy.one().Outcome)
				if tc.how == lostOutcome {
					require.Equal(t, lostOutcome, r.victim.one().Outcome)
					r.close()
					return
				}
				requireOK(t, r.victim.one())
				r.short(3, 10*time.Microsecond)
				require.False(t, r.b.paused())
				if tc.name != "closed" {
					r.busy.fill(r.a, 0, 4, isLong)
					r.b.finish(r.b.nth(t, 1), outcome.Success, 0)
					c := r.busy.one()
					require.NotEqual(t, outcome.Pending, c.Outcome.Kind)
				}
				require.NoError(t, r.dev.Check())
				r.close()
			})
		})
	}
}

// A job that misses its deadline and does not stop is reset away, whoever passed it before.
func TestHangAfterPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPauseRig(t, 20*time.Millisecond, func(b *pauseBackend) { b.obedient = false })
		time.Sleep(time.Millisecond)
		r.short(50, passWait)
		r.victim.fill(r.m, 0, 4, 2)
		require.Equal(t, hangOutcome, r.busy.one().Outcome)
		r.b.mu.Lock()
		require.Equal(t, 1, r.b.resets)
		r.b.mu.Unlock()
		requireOK(t, r.victim.one())
		r.short(3, r.b.took)
		require.NoError(t, r.dev.Check())
		r.close()
	})
}

// A job whose deadline is over nobody passes, whatever he is owed: so runDevice sees it.
func TestOverdueIsNotPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const deadline = 10 * time.Millisecond
		r := newPauseRig(t, deadline, nil)
		r.b.took = 70 * time.Microsecond
		e, overdue := r.dev.engine, 0
		r.b.within = func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			if e.oldest != nil && !e.dueLocked(e.oldest).After(e.pause.since) {
				overdue++
			}
		}
		time.Sleep(deadline - 30*time.Microsecond) // which bob has not had
		for r.busy.left() == 0 {
			r.short(1, 5*time.Millisecond)
			time.Sleep(20 * time.Microsecond)
		}
		require.Equal(t, hangOutcome, r.busy.one().Outcome)
		require.Zero(t, overdue)
		r.close()
	})
}

// On the mock device: beside a program that never ends short work is done at once, and that
// one ends when it has had its time.
func TestEndlessNeighbour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev, err := mock.New(mock.Options{Workers: 1})
		require.NoError(t, err)
		r := newMemRig(t, withBackend(dev))
		alice, bob := r.open("alice"), r.open("bob")
		spin, m := prog(t, alice, "spin"), buf(t, bob, 4096)
		qa, qb := r.queue(alice, 16, 0), r.queue(bob, 16, 0)
		began, had := time.Now(), time.Duration(0) // which is measured, and not on the virtual clock
		qa.launchFor(time.Second, spin)
		synctest.Wait()
		for n := range 300 {
			start := time.Now()
			qb.fill(m, 0, 64, uint32(n))
			c := qb.one()
			requireOK(t, c)
			had += time.Duration(c.DeviceNanos)
			require.LessOrEqual(t, time.Since(start), passWait+had, "%d", n)
			require.Zero(t, qa.left())
		}
		require.Equal(t, hangOutcome, qa.one().Outcome)
		require.InDelta(t, time.Second, time.Since(began), float64(time.Millisecond))
		r.close()
	})
}
