package ledger

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// BenchmarkNeighbour measures a tenant's charges while another does its worst: nothing,
// errors outside the ledger (for the load alone), requests that are granted, requests refused
// at its own limit, the same with a lease that becomes warm again and again, reads of its own
// counts, or requests refused at the device's limit. Only the cache line of the device's
// account is shared, and a refusal costs others no more than a grant does.
func BenchmarkNeighbour(b *testing.B) {
	for _, worst := range []string{"nothing", "busy", "granted", "refused", "refused-warm", "looks", "refused-by-device"} {
		for _, how := range []string{"reserve", "lease", "spend", "meter"} {
			b.Run(worst+"/"+how, func(b *testing.B) { benchmarkNeighbour(b, worst, how) })
		}
	}
}

func benchmarkNeighbour(b *testing.B, worst, how string) {
	l := New("device", NoLimits())
	greedy := child(b, child(b, l.Root(), "greedy", only(InFlight, 256)), "session", NoLimits())
	modest := child(b, child(b, l.Root(), "modest", only(InFlight, 256)), "session", NoLimits())
	if _, err := greedy.Reserve(InFlight, 200); err != nil {
		b.Fatal(err)
	}
	greedyLease, modestLease := greedy.Lease(InFlight), modest.Lease(InFlight)
	greedyMeter, modestMeter := greedy.Meter(DeviceTime), modest.Meter(DeviceTime)
	defer greedyMeter.Close()
	defer modestMeter.Close()
	both, _ := greedy.Reserve(InFlight, 40) // the device's peak is as high as it gets
	more, _ := modest.Reserve(InFlight, 20)
	both.Release()
	more.Release()
	if worst == "refused-by-device" {
		l.Root().SetLimit(InFlight, 240)
	}

	var none error
	defer func() { runtime.KeepAlive(none) }()
	doWorst := map[string]func(){
		"busy": func() { none = greedy.refusal(InFlight, 1, greedy, 2) },
		"granted": func() {
			r, _ := greedy.Reserve(InFlight, 1)
			r.Release()
		},
		"refused": func() { _, _ = greedy.Reserve(InFlight, 100) },
		"refused-warm": func() {
			if greedyLease.Take(8) == nil {
				greedyLease.Give(8)
			}
			_, _ = greedy.Reserve(InFlight, 100)
		},
		"looks":             func() { _ = greedy.Snapshot() },
		"refused-by-device": func() { _, _ = greedy.Reserve(InFlight, 56) },
	}[worst]
	var wg sync.WaitGroup
	var stop atomic.Bool
	count := 0
	if doWorst != nil {
		wg.Go(func() {
			for ; !stop.Load(); count++ {
				doWorst()
			}
		})
	}
	b.ReportAllocs()
	for b.Loop() {
		var err error
		switch how {
		case "reserve":
			var r Receipt
			r, err = modest.Reserve(InFlight, 1)
			r.Release()
		case "lease":
			if err = modestLease.Take(1); err == nil {
				modestLease.Give(1)
			}
		case "spend":
			err = modest.Spend(DeviceTime, 100)
		case "meter":
			err = modestMeter.Spend(100)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	stop.Store(true)
	wg.Wait()
	b.ReportMetric(float64(count)/b.Elapsed().Seconds()/1e6, "M/s-worst")
	greedyLease.Close()
	modestLease.Close()
	if err := l.Check(); err != nil {
		b.Fatal(err)
	}
}
