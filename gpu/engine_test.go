package gpu

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf/fake"
	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/outcome"
)

// The typed outcome of a job that obeys comes with its deadline, and counts from
// when the job could have begun.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand))
		alice, bob := r.open("alice"), r.open("bob", func(a *Attach) { a.MaxDeadline = 100 * time.Millisecond })
		b, p := buf(t, alice, 4096), prog(t, alice, "p")
		bb, bp := buf(t, bob, 4096), prog(t, bob, "p")
		qa, qb := r.queue(alice, 16, 4096), r.queue(bob, 16, 4096)
		begin := time.Now()
		qa.launchFor(30*time.Millisecond, p, whole(b))
		hand.nth(t, 0)
		qb.launchFor(time.Hour/10, bp, whole(bb)) // the session's bound is less
		require.Equal(t, hangOutcome, qa.one().Outcome)
		require.Equal(t, 30*time.Millisecond, time.Since(begin))
		require.Equal(t, hangOutcome, qb.one().Outcome)
		require.Equal(t, 130*time.Millisecond, time.Since(begin))
		require.Zero(t, hand.resets)
		require.GreaterOrEqual(t, alice.Budget()[ledger.DeviceTime].Used, uint64(30*time.Millisecond), "a hang is paid for")
		qa.launch(p, whole(b)) // the default
		begin = time.Now()
		require.Equal(t, hangOutcome, qa.one().Outcome)
		require.Equal(t, DefaultDeadline, time.Since(begin))
		r.close()
	})
}

// A job that finished before it could be cancelled is ok: it said so first.
func TestDeadlineLosesTheRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		hand.obedient = false
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice")
		b, p := buf(t, s, 4096), prog(t, s, "p")
		q := r.queue(s, 16, 4096)
		q.launchFor(time.Millisecond, p, whole(b))
		id := hand.nth(t, 0)
		time.Sleep(2 * time.Millisecond)
		hand.mu.Lock()
		require.Len(t, hand.cancels, 1)
		hand.mu.Unlock()
		hand.finish(id, outcome.Success, 0)
		requireOK(t, q.one())
		r.close()
	})
}

// A device is given the time that it needs to stop a job: on the mock device, whose
// jobs wait for pages that their client punched out, no less than 200 ms.
func TestCancelPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mockDevice, err := mock.New(mock.Options{})
		require.NoError(t, err)
		defer mockDevice.Close()
		hand := newHandBackend()
		hand.obedient, hand.limits.CancelBound = false, mockDevice.Info().Limits.CancelBound
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice")
		b, p := buf(t, s, 4096), prog(t, s, "p")
		q := r.queue(s, 16, 4096)
		q.launchFor(time.Millisecond, p, whole(b))
		id := hand.nth(t, 0)
		time.Sleep(190 * time.Millisecond)
		hand.finish(id, cancelledOutcome, 0)
		require.Equal(t, hangOutcome, q.one().Outcome)
		require.Zero(t, hand.resets)
		r.dev.cfg.HangBound = 400 * time.Millisecond
		require.Equal(t, 100*time.Millisecond, r.dev.engine.cancelPatience())
		r.close()
	})
}

// A job that ignores its cancel costs a reset: it is guilty, others are not.
func TestHangResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		hand.obedient = false
		r := newMemRig(t, withBackend(hand))
		alice, bob := r.open("alice"), r.open("bob")
		ab, bb, p := buf(t, alice, 4096), buf(t, bob, 4096), prog(t, alice, "p")
		f := newFence(t, bob, 0)
		qa, qb := r.queue(alice, 16, 4096), r.queue(bob, 16, 4096)
		begin := time.Now()
		qa.launchFor(10*time.Millisecond, p, whole(ab))
		guilty := hand.nth(t, 0)
		qb.fill(bb, 0, 4, 1)
		qb.signal(f, 1)
		innocent := hand.nth(t, 1)
		require.Equal(t, hangOutcome, qa.one().Outcome)
		require.LessOrEqual(t, time.Since(begin), 10*time.Millisecond+r.dev.cfg.HangBound)
		c := qb.take(2)
		require.Equal(t, resetOutcome, c[0].Outcome)
		require.Equal(t, resetOutcome, c[1].Outcome)
		require.Equal(t, 1, hand.resets)
		require.NoError(t, r.dev.Check())
		// Late words of before are no longer heard.
		hand.finish(guilty, outcome.Success, 0)
		hand.finish(innocent, outcome.Success, 0)
		hand.finish(12345, outcome.Success, 0)
		require.EqualValues(t, 3, r.dev.Status("").Strays)
		qb.fill(bb, 0, 4, 1)
		hand.finish(hand.nth(t, 2), outcome.Success, 0)
		requireOK(t, qb.one())
		st := r.dev.Status("alice")
		require.EqualValues(t, 1, st.Resets)
		require.EqualValues(t, 1, st.Tenants[0].Strikes)
		require.EqualValues(t, map[string]uint64{"timedOut": 1}, st.Tenants[0].Sessions[0].Outcomes)
		r.close()
	})
}

func TestBackendWordsAreDoubted(t *testing.T) {
	trap := outcome.Outcome{Kind: outcome.Failed, Cause: outcome.TrapCause, Trap: outcome.Trap{Kind: outcome.OutOfBounds, Binding: 1}}
	for said, want := range map[outcome.Outcome]outcome.Outcome{
		outcome.Success:                         outcome.Success,
		{Kind: outcome.OK, Cause: outcome.Hang}: outcome.Success,
		trap:                                    trap,
		errorOutcome:                            errorOutcome,
		{}:                                      errorOutcome,
		{Kind: outcome.Failed, Cause: outcome.TrapCause}:   errorOutcome,
		{Kind: outcome.Failed, Cause: outcome.LaunchLimit}: {Kind: outcome.Failed, Cause: outcome.LaunchLimit},
		{Kind: outcome.Kind(99)}:                           errorOutcome,
		{Kind: outcome.OK, Cause: outcome.Cause(99)}:       errorOutcome,
		{Kind: outcome.Cancelled}:                          errorOutcome, // nobody cancelled it
		{Kind: outcome.Innocent, Cause: outcome.Reset}:     errorOutcome,
		{Kind: outcome.TimedOut, Cause: outcome.Hang}:      errorOutcome,
		{Kind: outcome.Revoked, Cause: outcome.Closed}:     errorOutcome,
	} {
		got, lost := believe(said, outcome.Outcome{})
		require.Equal(t, want, got, "%v", said)
		require.False(t, lost)
	}
	got, _ := believe(outcome.Outcome{Kind: outcome.Cancelled}, revokedOutcome)
	require.Equal(t, revokedOutcome, got)
	got, lost := believe(outcome.Outcome{Kind: outcome.DeviceLost}, revokedOutcome)
	require.Equal(t, lostOutcome, got)
	require.True(t, lost)
}

func TestDoubleCompletionCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice")
		b := buf(t, s, 4096)
		q := r.queue(s, 16, 0)
		q.fill(b, 0, 4, 1)
		q.fill(b, 0, 4, 1)
		first := hand.nth(t, 0)
		hand.nth(t, 1)
		hand.finish(first, errorOutcome, 0)
		hand.finish(first, outcome.Success, 0) // the second must not profit
		synctest.Wait()
		require.Equal(t, 1, q.left())
		require.Equal(t, errorOutcome, q.one().Outcome)
		hand.finish(hand.nth(t, 1), outcome.Success, 0)
		requireOK(t, q.one())
		r.close()
	})
}

func TestSubmitRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		hand.refuse = gpuerr.New(gpuerr.IO, "doorbell stuck")
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice")
		b := buf(t, s, 4096)
		q := r.queue(s, 16, 0)
		q.fill(b, 0, 4, 1)
		require.Equal(t, errorOutcome, q.one().Outcome)
		require.NoError(t, s.DestroyBuffer(b))
		r.close()
	})
}

func TestCompletionInsideSubmit(t *testing.T) {
	hand := newHandBackend()
	hand.auto = true
	r := newMemRig(t, withBackend(hand))
	s := r.open("alice")
	b := buf(t, s, 4096)
	q := r.queue(s, 64, 0)
	for range 500 {
		q.fill(b, 0, 4, 1)
	}
	requireOK(t, q.take(500)...)
	r.idleButBuffers(s)
}

// stuckBackend is a device that cannot be closed until it is let go.
type stuckBackend struct {
	*handBackend
	letGo chan struct{}
}

func (b *stuckBackend) Close() error { <-b.letGo; return nil }

// Memory that a lost device may still write to stays what it was until the backend
// says that it has stopped; how the work ended is told at once.
func TestLostDeviceKeepsItsMemory(t *testing.T) {
	for name, lose := range map[string]func(*handBackend, backend.JobID){
		"gone":         func(h *handBackend, _ backend.JobID) { h.sink.DeviceGone("all ones") },
		"completion":   func(h *handBackend, id backend.JobID) { h.finish(id, lostOutcome, 0) },
		"failed reset": func(*handBackend, backend.JobID) {},
	} {
		synctest.Test(t, func(t *testing.T) {
			stuck := &stuckBackend{newHandBackend(), make(chan struct{})}
			stuck.obedient = false
			stuck.resetErr = gpuerr.New(gpuerr.Busy, "has not stopped yet")
			r := newMemRig(t, withBackend(stuck))
			s := r.open("alice")
			b := buf(t, s, 2*carveBytes)
			held, err := lookup[buffer](s.handles, b)
			require.NoError(t, err)
			q := r.queue(s, 16, 0)
			q.fill(b, 0, 4, 1)
			lose(stuck.handBackend, stuck.nth(t, 0))
			requireNotOK(t, q.one())
			<-r.dev.Lost()
			require.Len(t, stuck.last.Spans, 1)
			require.NotEmpty(t, stuck.last.Spans[0].Host, "the device may be reading the job")
			closed := make(chan error, 1)
			go func() { closed <- s.Close() }()
			time.Sleep(time.Minute)
			require.Empty(t, closed, name)
			require.GreaterOrEqual(t, held.mem.dma.FD(), 0, "still mapped")
			require.NoError(t, r.dev.Check())
			close(stuck.letGo)
			require.NoError(t, <-closed)
			require.Negative(t, held.mem.dma.FD())
			r.close()
		})
	}
}

func TestDeviceLoss(t *testing.T) {
	for name, lose := range map[string]func(*handBackend, backend.JobID){
		"gone":         func(h *handBackend, _ backend.JobID) { h.sink.DeviceGone("all ones") },
		"twice":        func(h *handBackend, _ backend.JobID) { h.sink.DeviceGone("all ones"); h.sink.DeviceGone("again") },
		"completion":   func(h *handBackend, id backend.JobID) { h.finish(id, lostOutcome, 0) },
		"failed reset": func(h *handBackend, _ backend.JobID) {},
	} {
		synctest.Test(t, func(t *testing.T) {
			hand := newHandBackend()
			hand.obedient = false
			hand.resetErr = gpuerr.New(gpuerr.DeviceLost, "not even to a reset")
			r := newMemRig(t, withBackend(hand))
			s, idle := r.open("alice"), r.open("bob")
			b, f, g := buf(t, s, 4096), newFence(t, s, 0), newFence(t, idle, 0)
			q, other := r.queue(s, 16, 0), r.queue(s, 16, 0)
			for range 4 {
				q.fill(b, 0, 4, 1)
			}
			q.signal(f, 1)
			other.wait(f, 9)
			other.signal(f, 9)
			id := hand.nth(t, 1)
			waited := make(chan FenceState, 1)
			go func() {
				st, err := idle.WaitFence(context.Background(), g, 1)
				require.NoError(t, err)
				waited <- st
			}()
			synctest.Wait()
			lose(hand, id)
			<-r.dev.Lost()
			require.ErrorIs(t, r.dev.Err(), gpuerr.DeviceLost, name)
			for _, c := range q.take(5) {
				if name == "failed reset" && c.UserData == 1 {
					continue // its deadline had passed before
				}
				require.Equal(t, outcome.DeviceLost, c.Outcome.Kind, "%s: entry %d", name, c.UserData)
			}
			require.Equal(t, outcome.DeviceLost, (<-waited).Outcome.Kind)
			synctest.Wait()
			require.Equal(t, gpuerr.DeviceLost, q.mem.code)
			for _, err := range []error{s.Err(), idle.Err(), s.SignalFence(f, 100), s.DestroyBuffer(b)} {
				require.ErrorIs(t, err, gpuerr.DeviceLost)
			}
			_, err := s.CreateBuffer(context.Background(), 1, 0)
			require.ErrorIs(t, err, gpuerr.DeviceLost)
			_, err = r.dev.OpenSession(Attach{Tenant: "carol"})
			require.ErrorIs(t, err, gpuerr.DeviceLost)
			require.NotEmpty(t, r.dev.Status("").Lost)
			require.NoError(t, s.Close())
			require.NoError(t, s.account.Zero())
			r.close()
		})
	}
}

func TestBan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand), func(c *Config, _ *fake.Options) {
			c.Strikes = StrikePolicy{Limit: 3, Window: time.Second, Ban: 10 * time.Second}
			c.DefaultDeadline = time.Millisecond
		})
		s, bob := r.open("alice"), r.open("bob")
		b, p := buf(t, s, 4096), prog(t, s, "p")
		q := r.queue(s, 16, 4096)
		strike := func() {
			q.launch(p, whole(b))
			require.Equal(t, hangOutcome, q.one().Outcome)
		}
		strike()
		strike()
		time.Sleep(2 * time.Second) // those are forgotten
		strike()
		strike()
		_, err := s.Restrict(Policy{Limits: ledger.NoLimits()})
		require.NoError(t, err)
		strike()
		synctest.Wait()
		time.Sleep(150 * time.Millisecond)
		_, err = r.dev.OpenSession(Attach{Tenant: "alice", TenantLimits: ledger.NoLimits(), Limits: ledger.NoLimits()})
		require.ErrorIs(t, err, gpuerr.Banned)
		require.ErrorContains(t, err, "banned for another 9.9s", "rounded up")
		_, err = s.Restrict(Policy{})
		require.ErrorIs(t, err, gpuerr.Banned)
		q.launch(p, whole(b))
		require.Equal(t, gpuerr.Banned, q.one().Code)
		require.NotNil(t, r.dev.Status("alice").Tenants[0].BannedUntil)
		require.NoError(t, s.SignalFence(newFence(t, s, 0), 1), "what it holds it may still use")
		r.queue(bob, 16, 0) // others are not banned
		time.Sleep(10 * time.Second)
		strike()
		r.open("alice")
		r.close()
	})
}

// Closing while the device does not obey: bounded, revoked, and no charge left.
func TestCloseWhileJobsRun(t *testing.T) {
	for _, obedient := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			hand := newHandBackend()
			hand.obedient = obedient
			r := newMemRig(t, withBackend(hand))
			s, bob := r.open("alice"), r.open("bob")
			f, b, bb := newFence(t, s, 0), buf(t, s, 4096), buf(t, bob, 4096)
			q, qb := r.queue(s, 16, 0), r.queue(bob, 16, 0)
			for range 5 {
				q.fill(b, 0, 4, 1)
			}
			q.signal(f, 1)
			hand.nth(t, 1)
			qb.fill(bb, 0, 4, 1)
			hand.nth(t, 2)
			begin := time.Now()
			require.NoError(t, s.Close())
			require.LessOrEqual(t, time.Since(begin), r.dev.cfg.HangBound)
			require.NoError(t, s.account.Zero())
			for _, c := range q.take(6) {
				require.Equal(t, revokedOutcome, c.Outcome, "entry %d", c.UserData)
			}
			require.Equal(t, gpuerr.Closed, q.mem.code)
			if obedient {
				require.Zero(t, hand.resets)
				hand.finish(hand.nth(t, 2), outcome.Success, 0)
				requireOK(t, qb.one())
			} else {
				require.Equal(t, 1, hand.resets)
				require.Equal(t, resetOutcome, qb.one().Outcome)
				require.EqualValues(t, 1, r.dev.Status("alice").Tenants[0].Strikes)
				require.Zero(t, r.dev.Status("bob").Tenants[0].Strikes)
			}
			r.close()
		})
	}
}

func TestCloseWhileSpinning(t *testing.T) {
	r := newMemRig(t)
	s := r.open("alice")
	spin := prog(t, s, "spin")
	q := r.queue(s, 16, 4096)
	for range 4 {
		q.launch(spin)
	}
	require.Eventually(t, func() bool { return r.dev.Status("").Tenants[0].Sessions[0].InFlight == 4 }, 5*time.Second, time.Millisecond)
	require.NoError(t, s.Close())
	for _, c := range q.take(4) {
		require.Equal(t, revokedOutcome, c.Outcome)
	}
	require.NoError(t, s.account.Zero())
}

// The mock's own faults, each with the outcome that it must have.
func TestMockFaults(t *testing.T) {
	for _, tc := range []struct {
		kind mock.FaultKind
		want outcome.Kind
	}{
		{mock.FaultHang, outcome.TimedOut},
		{mock.FaultErrorCompletion, outcome.Failed},
		{mock.FaultLostCompletion, outcome.TimedOut},
		{mock.FaultDuplicateCompletion, outcome.OK},
		{mock.FaultWrongJobID, outcome.TimedOut},
		{mock.FaultStrayDMA, outcome.Failed},
		{mock.FaultDeviceGone, outcome.DeviceLost},
		{mock.FaultWrongWritePointer, outcome.OK},
		{mock.FaultLateCompletion, outcome.TimedOut},
	} {
		t.Run(tc.kind.String(), func(t *testing.T) {
			r := newMemRig(t, withScript(mock.Fault{Kind: tc.kind, Job: 2}))
			s := r.open("alice")
			b := buf(t, s, 4096)
			q := r.queue(s, 16, 4096)
			copyProg, c := prog(t, s, "copy"), buf(t, s, 4096)
			for range 3 {
				q.launchFor(20*time.Millisecond, copyProg, whole(b), whole(c))
				got := q.one()
				want := outcome.OK
				if got.UserData == 2 || (got.UserData == 3 && tc.kind == mock.FaultDeviceGone) {
					want = tc.want
				}
				require.Equal(t, want, got.Outcome.Kind, "entry %d", got.UserData)
				if tc.kind == mock.FaultDeviceGone && got.UserData == 2 {
					break
				}
			}
			require.NoError(t, r.dev.Check())
		})
	}
}

// Two tenants that always have work share the device by weight, however long
// their jobs are; a tenant gains nothing by opening more sessions.
func TestFairShare(t *testing.T) {
	for _, tc := range []struct {
		weights  [2]uint32
		sessions [2]int
		lengths  [2]time.Duration
	}{
		{[2]uint32{1, 1}, [2]int{1, 1}, [2]time.Duration{time.Millisecond, time.Millisecond}},
		{[2]uint32{1, 1}, [2]int{1, 1}, [2]time.Duration{9 * time.Millisecond, time.Millisecond}},
		{[2]uint32{3, 1}, [2]int{1, 1}, [2]time.Duration{time.Millisecond, 2 * time.Millisecond}},
		{[2]uint32{1, 1}, [2]int{4, 1}, [2]time.Duration{time.Millisecond, time.Millisecond}},
	} {
		t.Run(fmt.Sprint(tc), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hand := newHandBackend()
				hand.limits.MaxJobs = 2 // a long FIFO would be the device's order, not ours
				r := newMemRig(t, withBackend(hand))
				var used [2]time.Duration
				owner := map[uint64]int{} // by IOVA
				for i := range 2 {
					for range tc.sessions[i] {
						s := r.open([]string{"alice", "bob"}[i], func(a *Attach) { a.Weight = tc.weights[i] })
						h := buf(t, s, 4096)
						b, err := lookup[buffer](s.handles, h)
						require.NoError(t, err)
						owner[b.iova] = i
						q := r.queue(s, 4096, 0)
						for range 1000 {
							q.fill(h, 0, 4, 1)
						}
					}
				}
				synctest.Wait()
				for n := 0; used[0]+used[1] < 400*time.Millisecond; n++ {
					id := hand.nth(t, n)
					hand.mu.Lock()
					who := owner[hand.jobs[n].Spans[0].IOVA]
					hand.mu.Unlock()
					time.Sleep(tc.lengths[who])
					used[who] += tc.lengths[who]
					hand.finish(id, outcome.Success, tc.lengths[who])
					synctest.Wait()
				}
				want := float64(tc.weights[0]) / float64(tc.weights[1])
				require.InEpsilon(t, want, float64(used[0])/float64(used[1]), 0.15, "%v", used)
				r.close()
			})
		})
	}
}

// However many sessions a tenant has full of work, another's job is next but two.
func TestTenantCannotFillTheDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand))
		for range 5 {
			s := r.open("alice")
			b, q := buf(t, s, 4096), r.queue(s, 16, 0)
			for range 5 {
				q.fill(b, 0, 4, 1)
			}
		}
		synctest.Wait()
		hand.nth(t, maxSent-1)
		bob := r.open("bob")
		b, q := buf(t, bob, 4096), r.queue(bob, 16, 0)
		q.fill(b, 0, 4, 2)
		hand.nth(t, maxSent)
		synctest.Wait()
		hand.mu.Lock()
		require.Len(t, hand.jobs, maxSent+1)
		require.EqualValues(t, 2, hand.jobs[maxSent].Pattern, "it did not wait for a place")
		hand.mu.Unlock()
		r.close()
	})
}

func TestFaultsAreAudited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		hand.obedient = false
		r := newMemRig(t, withBackend(hand), func(c *Config, _ *fake.Options) {
			c.Strikes.Limit, c.DefaultDeadline = 1, time.Millisecond
		})
		s := r.open("alice")
		b, p := buf(t, s, 4096), prog(t, s, "p")
		q := r.queue(s, 16, 4096)
		q.launch(p, whole(b))
		q.one()
		hand.sink.DeviceGone("all ones")
		require.NoError(t, r.dev.Close(context.Background()))
		records, err := r.fn.Grants().Audit.Snapshot(0, 100)
		require.NoError(t, err)
		told := map[string]string{}
		for _, rec := range records {
			told[rec.Kind] = rec.Detail
		}
		require.Contains(t, told["fault"], "deadline missed")
		require.Contains(t, told["ban"], `tenant=alice session=1`)
		require.Contains(t, told["reset"], "timedOut: hang")
		require.Contains(t, told["device.lost"], "all ones")
		require.Contains(t, told["session.close"], "timedOut=1")
		require.Contains(t, told["session.close"], `cause="E_DEVICE_LOST: `)
		r.close()
	})
}
