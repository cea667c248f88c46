package gpu

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf/fake"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/outcome"
)

func withStrikes(p StrikePolicy) rigOption {
	return func(c *Config, _ *fake.Options) { c.Strikes, c.DefaultDeadline = p, 10*time.Millisecond }
}

// A deadline of the caller's own choice says nothing about the work: missing it is
// no strike, however often, unless the device has to be reset for it.
func TestOwnDeadlineIsNoStrike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand), withStrikes(StrikePolicy{Limit: 2}))
		s := r.open("alice")
		b, p := buf(t, s, 4096), prog(t, s, "p")
		q := r.queue(s, 16, 4096)
		for range 5 {
			q.launchFor(time.Millisecond, p, whole(b))
			require.Equal(t, hangOutcome, q.one().Outcome)
		}
		synctest.Wait()
		require.Zero(t, r.dev.Status("alice").Tenants[0].Strikes)
		hand.mu.Lock()
		hand.obedient = false
		hand.mu.Unlock()
		q.launchFor(time.Millisecond, p, whole(b))
		require.Equal(t, hangOutcome, q.one().Outcome)
		require.EqualValues(t, 1, r.dev.Status("alice").Tenants[0].Strikes, "it did not stop")
		q.launch(p, whole(b)) // for as long as the policy gives, and then no stop either
		require.Equal(t, hangOutcome, q.one().Outcome)
		require.EqualValues(t, 2, r.dev.Status("alice").Tenants[0].Strikes, "one hang is one strike")
		r.close()
	})
}

// A restricted session is banned before its tenant, with everything below it and
// for good; a tenant that keeps making them is banned in the end.
func TestRestrictedSessionIsBannedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand), withStrikes(StrikePolicy{Limit: 2, Window: time.Hour, Ban: time.Minute}))
		s := r.open("alice")
		restrict := func(s *Session, longest time.Duration) *Session {
			child, err := s.Restrict(Policy{Facet: FacetFull, Limits: ledger.NoLimits(), MaxDeadline: longest})
			require.NoError(t, err)
			return child
		}
		hang := func(s *Session) outcome.Outcome {
			b := buf(t, s, 4096)
			q := r.queue(s, 2, 64)
			q.fill(b, 0, 4, 1)
			c := q.one()
			synctest.Wait()
			require.Equal(t, c.Code == gpuerr.Banned, c.Outcome.Kind == outcome.Failed)
			require.NoError(t, s.CloseQueue(q.h))
			return c.Outcome
		}
		child := restrict(s, 0)
		require.Equal(t, hangOutcome, hang(restrict(child, time.Millisecond)), "a deadline that a session gave itself")
		require.Equal(t, hangOutcome, hang(child))
		below := restrict(child, 0)
		q := r.queue(child, 2, 64)
		require.Equal(t, hangOutcome, hang(below), "the second strike of the branch")
		for _, banned := range []*Session{child, below} {
			_, err := banned.CreateQueue(2, 64)
			require.ErrorIs(t, err, gpuerr.Banned)
			_, err = banned.Restrict(Policy{})
			require.ErrorIs(t, err, gpuerr.Banned)
		}
		time.Sleep(time.Hour / 2)
		q.fill(buf(t, child, 4096), 0, 4, 1)
		require.Equal(t, gpuerr.Banned, q.one().Code, "for good")
		st := r.dev.Status("alice").Tenants[0]
		require.EqualValues(t, 1, st.Strikes)
		require.Nil(t, st.BannedUntil)

		other := restrict(s, 0)
		require.Equal(t, hangOutcome, hang(other))
		require.Equal(t, hangOutcome, hang(other))
		_, err := s.CreateQueue(2, 64)
		require.ErrorIs(t, err, gpuerr.Banned, "the second branch is the tenant's second strike")
		r.close()
	})
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
		until := r.dev.Status("alice").Tenants[0].BannedUntil
		end := until.Add(time.Second - 1).Truncate(time.Second).UTC()
		require.ErrorContains(t, err, "reason=hang until="+end.Format(time.RFC3339)+":", "rounded up")
		require.Equal(t, "hang", r.dev.Status("alice").Tenants[0].BanReason)
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

// A branch that is banned is told why, and that there is no end to it: not in time, and
// not with another driver, which does not know the reason of every strike.
func TestBranchIsBannedForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemRig(t, withStrikes(StrikePolicy{Limit: 2, Window: time.Hour, Ban: time.Minute}))
		s := r.open("alice")
		child, err := s.Restrict(Policy{Facet: FacetFull, Limits: ledger.NoLimits()})
		require.NoError(t, err)
		below, err := child.Restrict(Policy{Facet: FacetFull, Limits: ledger.NoLimits()})
		require.NoError(t, err)
		r.dev.strike(below, "did not stop", "")
		require.NoError(t, child.banned())
		r.dev.strike(child, outcome.IOMMUFault.String(), "")
		for range 3 {
			for _, banned := range []*Session{child, below} {
				_, err := banned.CreateQueue(2, 64)
				require.ErrorIs(t, err, gpuerr.Banned)
				require.ErrorContains(t, err, "reason=iommuFault until=forever: ")
			}
			require.NoError(t, s.banned())
			time.Sleep(1000 * time.Hour)
		}
		child.branch.reason.Store(nil) // as a successor has it
		require.ErrorContains(t, below.banned(), "reason=hang until=forever: ")
		r.dev.strike(below, "deadline missed", "")
		r.dev.strike(below, "deadline missed", "")
		require.ErrorContains(t, below.banned(), "until=forever")
		require.NoError(t, s.banned(), "two strikes of the tenant are more than an hour apart")
		r.close()
	})
}

// Tenants that agree to hang the function, one after the other, get as many resets as they
// have strikes together until all are banned, and no more before the first ban ends. One
// that restricts sessions for it gets its own limit of strikes for each of those, whether it
// uses a session up or takes another one before that is banned.
func TestColludingTenantsAreBounded(t *testing.T) {
	const limit, window, ban = 3, time.Minute, 10 * time.Second
	for _, c := range []struct {
		name     string
		tenants  []string
		restrict bool
		each     int // hangs in one session
		most     uint64
	}{
		{"one", []string{"mallory"}, false, limit, limit},
		{"two", []string{"mallory", "trudy"}, false, limit, 2 * limit},
		{"two that restrict", []string{"mallory", "trudy"}, true, limit, 2 * limit * limit},
		{"two that restrict again before a ban", []string{"mallory", "trudy"}, true, limit - 1, 2 * limit * limit},
		{"two that restrict for each hang", []string{"mallory", "trudy"}, true, 1, 2 * limit * limit},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hand := newHandBackend()
				hand.obedient = false
				r := newMemRig(t, withBackend(hand), withStrikes(StrikePolicy{Limit: limit, Window: window, Ban: ban}))
				began := time.Now()
				var banned int
				for turn := 0; banned < len(c.tenants); turn++ {
					banned = 0
					for _, name := range c.tenants {
						s, err := r.dev.OpenSession(Attach{Tenant: name, TenantLimits: ledger.NoLimits(), Limits: ledger.NoLimits(), Facet: FacetFull})
						if err != nil {
							require.ErrorIs(t, err, gpuerr.Banned)
							banned++
							continue
						}
						at := s
						if c.restrict {
							at, err = s.Restrict(Policy{Facet: FacetFull, Limits: ledger.NoLimits()})
							require.NoError(t, err)
						}
						b := buf(t, at, 4096)
						for range c.each {
							if at.banned() != nil {
								break
							}
							q := r.queue(at, 2, 64)
							q.fill(b, 0, 4, 1)
							require.NotEqual(t, outcome.OK, q.one().Outcome.Kind)
							synctest.Wait()
							_ = at.CloseQueue(q.h)
						}
						require.NoError(t, s.Close())
					}
					require.Less(t, turn, 100)
				}
				require.Equal(t, c.most, r.dev.reactor.resets.Load())
				require.Less(t, time.Since(began), ban, "nobody's ban has ended meanwhile")
				r.close()
			})
		})
	}
}
