package ledger

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChargingAllocatesNothing(t *testing.T) {
	l := New("device", NoLimits())
	session := child(t, child(t, l.Root(), "tenant", NoLimits()), "session", NoLimits())
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		r, err := session.Reserve(InFlight, 1)
		if err != nil {
			t.Fatal(err)
		}
		r.Commit()
		r.Release()
		_ = session.Spend(DeviceTime, 1)
	}))
}

// BenchmarkReserveRelease charges at depth 3, as a submission does.
func BenchmarkReserveRelease(b *testing.B) {
	for _, sessions := range []int{1, 1024, 4096} {
		b.Run(fmt.Sprintf("sessions=%d", sessions), func(b *testing.B) {
			l := New("device", NoLimits())
			var all []*Account
			for i := range sessions {
				tenant := child(b, l.Root(), fmt.Sprintf("tenant %d", i/16), NoLimits())
				all = append(all, child(b, tenant, "session", NoLimits()))
			}
			var next atomic.Uint64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := next.Add(1) * 97; pb.Next(); i++ {
					r, err := all[i%uint64(sessions)].Reserve(InFlight, 1)
					if err != nil {
						b.Fatal(err)
					}
					r.Release()
				}
			})
		})
	}
}

func BenchmarkReserve(b *testing.B) {
	l := New("device", NoLimits())
	session := child(b, child(b, l.Root(), "tenant", NoLimits()), "session", NoLimits())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := session.Reserve(DeviceMemory, 1); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSpend(b *testing.B) {
	l := New("device", NoLimits())
	session := child(b, child(b, l.Root(), "tenant", NoLimits()), "session", NoLimits())
	b.ReportAllocs()
	for b.Loop() {
		if err := session.Spend(DeviceTime, 1); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	l := New("device", NoLimits())
	for i := range 4096 {
		child(b, l.Root(), fmt.Sprintf("session %d", i), NoLimits())
	}
	for b.Loop() {
		if err := l.Check(); err != nil {
			b.Fatal(err)
		}
	}
}

// warmLease is a lease with something idle.
func warmLease(t testing.TB, a *Account) *Lease {
	t.Helper()
	l := a.Lease(InFlight)
	t.Cleanup(l.Close)
	require.NoError(t, l.Take(64))
	l.Give(64)
	require.NotZero(t, l.word.Load())
	return l
}

// BenchmarkLease takes and gives one unit, as a submission and its completion do.
func BenchmarkLease(b *testing.B) {
	l := New("device", NoLimits())
	lease := warmLease(b, child(b, child(b, l.Root(), "tenant", NoLimits()), "session", NoLimits()))
	b.ReportAllocs()
	for b.Loop() {
		if err := lease.Take(1); err != nil {
			b.Fatal(err)
		}
		lease.Give(1)
	}
}

// BenchmarkLeaseParallel has a lease, and a session, for each goroutine.
func BenchmarkLeaseParallel(b *testing.B) {
	l := New("device", NoLimits())
	tenant := child(b, l.Root(), "tenant", NoLimits())
	together := warmLease(b, tenant)
	if err := together.Take(1 << 20); err != nil { // so high a peak was there
		b.Fatal(err)
	}
	together.Give(1 << 20)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		lease := warmLease(b, child(b, tenant, "session", NoLimits()))
		for pb.Next() {
			if err := lease.Take(1); err != nil {
				b.Fatal(err)
			}
			lease.Give(1)
		}
	})
}

func BenchmarkMeter(b *testing.B) {
	l := New("device", NoLimits())
	meter := child(b, child(b, l.Root(), "tenant", NoLimits()), "session", NoLimits()).Meter(DeviceTime)
	b.ReportAllocs()
	for b.Loop() {
		if err := meter.Spend(500); err != nil {
			b.Fatal(err)
		}
	}
}
