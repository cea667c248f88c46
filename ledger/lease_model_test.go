package ledger

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLeasesAgainstModel drives leases and meters, and every operation that recalls their
// idle units, in trees where limits, peaks, and closed accounts are always near. It rarely
// reads the counts, since a read leaves nothing idle; each answer is compared.
func TestLeasesAgainstModel(t *testing.T) {
	trees := 500
	if testing.Short() {
		trees = 200
	}
	for seed := range trees {
		driveLeases(t, rand.New(rand.NewPCG(1, uint64(seed))), 150)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func driveLeases(t *testing.T, rng *rand.Rand, steps int) {
	scale := []uint64{4, 20, 300, 100_000}[rng.IntN(4)] // of limits and amounts
	limit := func() uint64 {
		switch rng.IntN(6) {
		case 0:
			return Unlimited
		case 1:
			return Unlimited - rng.Uint64N(scale)
		}
		return rng.Uint64N(scale + 1)
	}
	limits := func() Limits {
		l := NoLimits()
		l[InFlight], l[DeviceTime] = limit(), limit()*4
		return l
	}
	amount := func() uint64 {
		if rng.IntN(50) == 0 {
			return Unlimited - rng.Uint64N(scale)
		}
		return rng.Uint64N(scale/4/(1+rng.Uint64N(8)) + 2)
	}
	book, root := newModel(limits())
	accounts := []*modelAccount{root}
	for i := range 6 { // two below the root, and two below each
		l := limits()
		parent := accounts[max(i-1, 0)/2]
		accounts = append(accounts, parent.child(child(t, parent.real, fmt.Sprintf("account %d", i), l), l))
	}
	pick := func() *modelAccount { return accounts[rng.IntN(len(accounts))] }
	var leases []*modelLease
	var meters []*modelMeter
	for range 5 {
		m := pick()
		leases = append(leases, &modelLease{m.real.Lease(InFlight), m.charge(InFlight)})
		m = pick()
		meters = append(meters, &modelMeter{m.real.Meter(DeviceTime), m})
	}
	var charges []*modelCharge

	take := func(l *modelLease) {
		n := amount()
		available := l.at.available(InFlight)
		if l.at.requireReserve(t, InFlight, n, available, l.Take(n)) {
			l.amount += n
			l.at.notePeaks()
		}
	}
	give := func(l *modelLease) {
		n := l.amount
		if rng.IntN(2) == 0 {
			n = min(n, amount())
		}
		l.Give(n)
		l.amount -= n
	}
	for range steps {
		l, mt, m := leases[rng.IntN(len(leases))], meters[rng.IntN(len(meters))], pick()
		switch rng.IntN(40) {
		default:
			take(l)
		case 0, 1, 2, 3, 4, 5, 6, 7, 8, 9:
			give(l)
		case 10, 11, 12:
			take(l)
			give(l)
		case 13, 14, 15, 16, 17, 18:
			n := amount()
			mt.at.requireSpend(t, n, mt.Spend(n))
		case 19:
			n := amount()
			m.requireSpend(t, n, m.real.Spend(DeviceTime, n))
		case 20, 21:
			n, available := amount(), m.available(InFlight)
			receipt, err := m.real.Reserve(InFlight, n)
			if m.requireReserve(t, InFlight, n, available, err) {
				charge := &modelCharge{receipt: receipt, at: m, class: InFlight, amount: n}
				m.charges = append(m.charges, charge)
				charges = append(charges, charge)
				m.notePeaks()
			}
		case 22, 23:
			if len(charges) > 0 {
				charge := charges[rng.IntN(len(charges))]
				charge.receipt.Release()
				charge.released = true
			}
		case 24, 25:
			c, n := []Class{InFlight, DeviceTime}[rng.IntN(2)], limit()
			m.real.SetLimit(c, n)
			m.limits[c] = n
		case 26:
			if c := []Class{InFlight, DeviceTime}[rng.IntN(2)]; m.open() {
				require.Equal(t, m.available(c), m.real.Available(c))
			}
		case 27:
			if !m.detached {
				require.Equal(t, m.available(DeviceTime) > 0, m.real.CanSpend(DeviceTime) == nil)
			}
		case 28:
			if rng.IntN(8) == 0 {
				m.requireClose(t, m.real.Close())
			}
		case 29:
			if rng.IntN(2) == 0 && !m.detached {
				m.requireSame(t)
			}
		case 30:
			if rng.IntN(4) == 0 {
				l.Lease.Close()
				requireCold(t, &l.stash)
			}
			if rng.IntN(4) == 0 {
				mt.Close()
				requireCold(t, &mt.stash)
			}
		}
		require.NoError(t, book.Check())
		for _, l := range leases { // any trip to the tree may make it warm
			l.cool.Store(0)
			if l.ended {
				requireCold(t, &l.stash)
			}
		}
		for _, m := range meters {
			m.cool.Store(0)
		}
	}
	for _, m := range accounts {
		if !m.detached {
			m.requireSame(t)
		}
	}
}

func requireCold(t *testing.T, s *stash) {
	t.Helper()
	require.True(t, s.ended)
	require.False(t, s.warm)
	require.Zero(t, s.word.Load())
}
