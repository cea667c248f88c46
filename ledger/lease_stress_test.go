package ledger

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
)

// tally counts at its account and every one above, from outside. A unit that it counts as
// taken was taken: it counts after a Take and before the Give.
type tally struct {
	parent *tally
	real   *Account
	taken  atomic.Uint64
	limit  uint64
}

func newTally(t testing.TB, parent *tally, limit uint64) *tally {
	return &tally{parent: parent, real: child(t, parent.real, "account", only(InFlight, limit)), limit: limit}
}

func (y *tally) add(t *testing.T, n uint64) {
	for ; y != nil; y = y.parent {
		if taken := y.taken.Add(n); taken > y.limit && n < 1<<32 {
			t.Errorf("%d taken of %d", taken, y.limit)
		}
	}
}

// disturb recalls at every level, in every possible way, until stop is set.
func disturb(t *testing.T, stop *atomic.Bool, l *Ledger, accounts []*tally) {
	rng := rand.New(rand.NewPCG(7, 7))
	for !stop.Load() {
		y := accounts[rng.IntN(len(accounts))]
		switch rng.IntN(6) {
		case 0:
			if e := y.real.Snapshot()[InFlight]; e.Reserved+e.Used > y.limit || e.Peak > y.limit {
				t.Errorf("%+v", e)
			}
		case 1:
			if err := l.Check(); err != nil {
				t.Error(err)
			}
		case 2:
			y.real.SetLimit(InFlight, rng.Uint64N(y.limit))
			y.real.SetLimit(InFlight, y.limit)
		case 3:
			_ = y.real.Available(InFlight)
		default: // a refusal
			if _, err := y.real.Reserve(InFlight, y.limit+1); err == nil {
				t.Error("more than the limit was granted")
			}
		}
	}
}

// TestLeaseStress takes through leases and without, at four levels, near every
// limit: no account ever has more taken than its limit, and nothing is left.
func TestLeaseStress(t *testing.T) {
	const rounds = 10000
	l := New("device", only(InFlight, 60))
	root := &tally{real: l.Root(), limit: 60}
	accounts := []*tally{root}
	var sessions []*tally
	for range 2 {
		tenant := newTally(t, root, 40)
		accounts = append(accounts, tenant)
		for range 2 {
			sessions = append(sessions, newTally(t, tenant, 24))
			sessions = append(sessions, newTally(t, sessions[len(sessions)-1], 16))
		}
	}
	accounts = append(accounts, sessions...)
	var workers, observers sync.WaitGroup
	var stop atomic.Bool
	var granted, refused atomic.Uint64
	for i, y := range sessions {
		shared := y.real.Lease(InFlight)
		for j := range 2 {
			workers.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), uint64(j)))
				own := y.real.Lease(InFlight)
				defer own.Close()
				var receipts []Receipt
				var given [2][]uint64
				for range rounds {
					n := 1 + rng.Uint64N(6)
					var err error
					which := rng.IntN(3)
					switch which {
					case 0:
						var r Receipt
						if r, err = y.real.Reserve(InFlight, n); err == nil {
							receipts = append(receipts, r)
						}
					default:
						if err = []*Lease{own, shared}[which-1].Take(n); err == nil {
							given[which-1] = append(given[which-1], n)
						}
					}
					if err == nil {
						granted.Add(1)
						y.add(t, n)
					} else if refused.Add(1); gpuerr.CodeOf(err) != gpuerr.Quota {
						t.Error(err)
					}
					for len(receipts)+len(given[0])+len(given[1]) > rng.IntN(3) {
						switch which := rng.IntN(3); {
						case which == 0 && len(receipts) > 0:
							y.add(t, -receipts[0].Amount())
							receipts[0].Release()
							receipts = receipts[1:]
						case which > 0 && len(given[which-1]) > 0:
							n := given[which-1][0]
							given[which-1] = given[which-1][1:]
							y.add(t, -n)
							own, shared := own, shared
							[]*Lease{own, shared}[which-1].Give(n)
							for _, s := range []*Lease{own, shared} {
								s.cool.Store(int32(rng.IntN(2)))
							}
						}
					}
				}
				for i := range receipts {
					y.add(t, -receipts[i].Amount())
					receipts[i].Release()
				}
				for which, ns := range given {
					for _, n := range ns {
						y.add(t, -n)
						[]*Lease{own, shared}[which].Give(n)
					}
				}
			})
		}
	}
	for range 2 {
		observers.Go(func() { disturb(t, &stop, l, accounts) })
	}
	workers.Wait()
	stop.Store(true)
	observers.Wait()
	require.NoError(t, l.Check())
	require.NoError(t, l.Root().Zero())
	require.NoError(t, l.Check())
	require.NotZero(t, granted.Load())
	require.NotZero(t, refused.Load())
}

// TestLeaseIsNeverRefusedWrongly: goroutines that never have more taken than the
// device has for all of them are never refused, wherever units are idle.
func TestLeaseIsNeverRefusedWrongly(t *testing.T) {
	const rounds, workers, most = 10000, 4, 5
	l := New("device", only(InFlight, workers*most))
	var sessions []*Account
	for range 3 {
		tenant := child(t, l.Root(), "tenant", only(InFlight, workers*most))
		sessions = append(sessions, tenant, child(t, tenant, "session", only(InFlight, workers*most)), child(t, tenant, "session", NoLimits()))
	}
	leases := make([]*Lease, len(sessions))
	for i, s := range sessions {
		leases[i] = s.Lease(InFlight)
	}
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(3, uint64(i)))
			for range rounds {
				a, b := leases[rng.IntN(len(leases))], leases[rng.IntN(len(leases))]
				n := rng.Uint64N(most)
				if err := a.Take(n); err != nil {
					t.Error(err)
					return
				}
				if err := b.Take(most - n); err != nil {
					t.Error(err)
					return
				}
				a.Give(n)
				b.Give(most - n)
				if r, err := sessions[rng.IntN(len(sessions))].Reserve(InFlight, most); err != nil {
					t.Error(err)
				} else {
					r.Release()
				}
				a.cool.Store(0)
				b.cool.Store(0)
			}
		})
	}
	wg.Wait()
	require.NoError(t, l.Root().Zero())
	require.NoError(t, l.Check())
	require.LessOrEqual(t, l.Root().Snapshot()[InFlight].Peak, uint64(workers*most))
}

// TestMeterStress: the spending of meters is counted exactly, and no request gets a wrong
// answer about the room left.
func TestMeterStress(t *testing.T) {
	const rounds, limit = 3000, 40000
	l := New("device", NoLimits())
	l.Root().SetLimit(DeviceTime, limit)
	tenant := child(t, l.Root(), "tenant", NoLimits())
	var begun, done atomic.Uint64
	var workers, observers sync.WaitGroup
	var stop atomic.Bool
	for i := range 4 {
		a := child(t, tenant, "session", NoLimits())
		workers.Go(func() {
			m := a.Meter(DeviceTime)
			rng := rand.New(rand.NewPCG(9, uint64(i)))
			for range rounds {
				n := 1 + rng.Uint64N(8)
				least := done.Load() + n
				begun.Add(n)
				err := m.Spend(n)
				switch most := begun.Load(); {
				case err == nil && least > limit:
					t.Errorf("%d were spent of %d, and it did not say so", least, limit)
				case err != nil && most <= limit:
					t.Errorf("at most %d were spent of %d: %v", most, limit, err)
				}
				done.Add(n)
				m.cool.Store(int32(rng.IntN(3)))
			}
			if i%2 == 0 {
				m.Close()
			}
			if err := a.Close(); err != nil {
				t.Error(err)
			}
			begun.Add(3)
			_ = m.Spend(3)
			done.Add(3)
		})
	}
	observers.Go(func() {
		rng := rand.New(rand.NewPCG(7, 7))
		for !stop.Load() {
			switch rng.IntN(4) {
			case 0:
				least := done.Load()
				e := tenant.Snapshot()[DeviceTime]
				if most := begun.Load(); e.Used < least || e.Used > most || e.Peak != e.Used {
					t.Errorf("%+v, but it is from %d to %d", e, least, most)
				}
			case 1:
				if err := l.Check(); err != nil {
					t.Error(err)
				}
			case 2:
				if least := done.Load(); tenant.CanSpend(DeviceTime) == nil && least >= limit {
					t.Errorf("%d were spent of %d, and more can be", least, limit)
				}
			case 3:
				_ = tenant.Available(DeviceTime)
			}
		}
	})
	workers.Wait()
	stop.Store(true)
	observers.Wait()
	require.NoError(t, l.Check())
	require.Equal(t, done.Load(), held(l.Root(), DeviceTime))
	require.Equal(t, done.Load(), held(tenant, DeviceTime))
	require.NoError(t, tenant.Close())
	require.NoError(t, l.Check())
}

// TestLeaseEndsWithItsAccount: once Close or a lower limit returned, nothing is
// taken that Reserve would not charge.
func TestLeaseEndsWithItsAccount(t *testing.T) {
	for range 200 {
		l := New("device", NoLimits())
		tenant := child(t, l.Root(), "tenant", NoLimits())
		a := child(t, tenant, "a", NoLimits())
		keep, err := a.Reserve(InFlight, 3)
		require.NoError(t, err)
		var wg sync.WaitGroup
		var lowered, closing atomic.Bool
		for _, lease := range []*Lease{warmLease(t, a), warmLease(t, a), warmLease(t, a)} {
			wg.Go(func() {
				for {
					late, over := closing.Load(), lowered.Load()
					if lease.Take(1) != nil {
						if late {
							return
						}
						continue
					}
					lease.Give(1)
					lease.cool.Store(0)
					if late || over {
						t.Error("taken after it was refused to all")
						return
					}
				}
			})
		}
		tenant.SetLimit(InFlight, 3)
		lowered.Store(true)
		require.Error(t, tenant.Close())
		closing.Store(true)
		wg.Wait()
		keep.Release()
		require.NoError(t, a.Close())
		require.NoError(t, tenant.Close())
		require.NoError(t, l.Check())
	}
}
