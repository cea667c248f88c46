package ledger

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
)

// TestStress charges three levels from many goroutines while others observe,
// check, and open and close accounts. No observer ever sees more than the limit,
// every check is clean in the middle of it, and at the end nothing is left.
func TestStress(t *testing.T) {
	const rounds, limit = 4000, 64
	l := New("device", only(InFlight, limit))
	var sessions []*Account
	for range 2 {
		tenant := child(t, l.Root(), "tenant", only(InFlight, limit*3/4))
		for range 3 {
			sessions = append(sessions, child(t, tenant, "session", only(InFlight, limit/2)))
		}
	}
	var workers, observers sync.WaitGroup
	var stop atomic.Bool
	var spent atomic.Uint64
	for i, s := range sessions {
		workers.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			var mine []Receipt
			for range rounds {
				if r, err := s.Reserve(InFlight, rng.Uint64N(limit/3)); err == nil {
					if rng.IntN(2) == 0 {
						r.Commit()
					}
					mine = append(mine, r)
				} else if gpuerr.CodeOf(err) != gpuerr.Quota {
					t.Error(err)
				}
				for len(mine) > rng.IntN(4) {
					mine[0].Release()
					mine = mine[1:]
				}
				if err := s.Spend(DeviceTime, 3); err != nil {
					t.Error(err)
				}
				spent.Add(3)
			}
			for i := range mine {
				mine[i].Release()
			}
		})
	}
	observers.Go(func() {
		for !stop.Load() {
			for _, a := range []*Account{l.Root(), sessions[0].parent, sessions[0]} {
				e := a.Snapshot()[InFlight]
				if e.Reserved+e.Used > e.Limit || e.Peak > e.Limit {
					t.Errorf("%s shows %+v", a.Name(), e)
				}
			}
		}
	})
	observers.Go(func() {
		for !stop.Load() {
			if err := l.Check(); err != nil {
				t.Error(err)
			}
		}
	})
	observers.Go(func() {
		for !stop.Load() {
			s, err := sessions[0].parent.Child("brief", NoLimits())
			if err != nil {
				t.Error(err)
				return
			}
			r, _ := s.Reserve(InFlight, 1)
			_ = s.Spend(DeviceTime, 1)
			spent.Add(1)
			r.Release()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	workers.Wait()
	stop.Store(true)
	observers.Wait()
	require.NoError(t, l.Check())
	require.NoError(t, l.Root().Zero())
	require.Equal(t, spent.Load(), held(l.Root(), DeviceTime))
	require.NotZero(t, l.Root().Snapshot()[InFlight].Peak)
}

// TestReceiptOnceUnderRace releases and commits one receipt from many goroutines.
func TestReceiptOnceUnderRace(t *testing.T) {
	l := New("device", NoLimits())
	keep, err := l.Root().Reserve(Buffers, 1000)
	require.NoError(t, err)
	for range 500 {
		r, err := l.Root().Reserve(Buffers, 1)
		require.NoError(t, err)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(r.Commit)
			wg.Go(r.Release)
		}
		wg.Wait()
	}
	require.Equal(t, uint64(1000), held(l.Root(), Buffers))
	keep.Release()
	require.NoError(t, l.Check())
	require.NoError(t, l.Root().Zero())
}

// TestLimitAndCloseAreExact: no charge is granted by the old limit, or by an open
// account, that begins or ends after the change returned.
func TestLimitAndCloseAreExact(t *testing.T) {
	for range 200 {
		l := New("device", NoLimits())
		tenant := child(t, l.Root(), "tenant", NoLimits())
		a := child(t, tenant, "a", NoLimits())
		var wg sync.WaitGroup
		start := make(chan struct{})
		for range 4 {
			wg.Go(func() {
				<-start
				for {
					if _, err := a.Reserve(Buffers, 1); err != nil {
						return
					}
				}
			})
		}
		close(start)
		for held(tenant, Buffers) < 50 {
			if _, err := a.Reserve(Fences, 1); err != nil {
				t.Fatal(err)
			}
		}
		tenant.SetLimit(Buffers, 10)
		after := held(tenant, Buffers)
		wg.Wait()
		require.Equal(t, after, held(tenant, Buffers), "charged after the limit was lowered")

		wg.Go(func() {
			for {
				if _, err := a.Reserve(Fences, 1); err != nil {
					return
				}
			}
		})
		require.Error(t, tenant.Close())
		after = held(a, Fences)
		wg.Wait()
		require.Equal(t, after, held(a, Fences), "charged after close")
		require.NoError(t, l.Check())
	}
}

// TestNeighbourIsNeverRefused: while one tenant's requests are refused at the
// tenant's limit, another's that fit never are.
func TestNeighbourIsNeverRefused(t *testing.T) {
	l := New("device", only(Buffers, 20))
	greedy := child(t, child(t, l.Root(), "greedy", only(Buffers, 10)), "session", NoLimits())
	modest := child(t, child(t, l.Root(), "modest", only(Buffers, 10)), "session", NoLimits())
	var wg sync.WaitGroup
	var stop atomic.Bool
	for range 2 {
		wg.Go(func() {
			for !stop.Load() {
				if r, err := greedy.Reserve(Buffers, 7); err == nil {
					r.Release()
				}
			}
		})
	}
	for range 20000 {
		r, err := modest.Reserve(Buffers, 10)
		if err != nil {
			t.Fatal(err)
		}
		r.Release()
	}
	stop.Store(true)
	wg.Wait()
	require.NoError(t, l.Root().Zero())
	require.NoError(t, l.Check())
}
