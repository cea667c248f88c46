package manager

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/iommu/faultlog"
)

// gapsOf returns the gaps of two functions, and a function that reports a fault of one of
// them, printed so long after the start.
func gapsOf() (g *faultGaps, start time.Time, fault func(address string, at time.Duration)) {
	const a, b = "0000:01:00.0", "0000:02:00.0"
	g, start = &faultGaps{addresses: []string{a, b}, until: make([]time.Time, 2)}, time.Now()
	return g, start, func(address string, at time.Duration) {
		g.take(faultlog.Fault{Address: address, Micros: uint64((time.Minute + at).Microseconds())}, start.Add(at))
	}
}

// Reports of a function that faulted while the kernel's limit was reached may be missing
// until the kernel prints again. A function that did not fault is not affected.
func TestGapWhereTheLimitIsReached(t *testing.T) {
	const a, b = "0000:01:00.0", "0000:02:00.0"
	g, start, fault := gapsOf()
	fault(a, 0)
	fault(a, time.Second)
	require.EqualValues(t, math.MaxInt64, g.complete(0, start.Add(time.Second)), "two are printed always")
	fault("0000:09:00.0", 3*time.Second) // of another device; it counts
	require.Zero(t, g.complete(0, start.Add(3*time.Second)))
	require.Zero(t, g.complete(0, start.Add(5*time.Second)))
	require.Equal(t, time.Second, g.complete(0, start.Add(6*time.Second)), "work that began less than that ago is known")
	require.EqualValues(t, math.MaxInt64, g.complete(1, start.Add(3*time.Second)))

	g, start, fault = gapsOf()
	for i := range 10 { // never three in 5 s
		fault(a, time.Duration(i)*2600*time.Millisecond)
	}
	require.EqualValues(t, math.MaxInt64, g.complete(0, start.Add(time.Hour)))

	g, start, fault = gapsOf()
	fault(b, 0)
	fault(a, time.Second)
	fault(a, 2*time.Second)
	require.Zero(t, g.complete(1, start.Add(2*time.Second)), "it had its part")
	require.Equal(t, time.Minute, g.complete(1, start.Add(65*time.Second)))
	require.Zero(t, g.complete(0, start.Add(5*time.Second)))
}

// A report that may be of several functions makes a gap for none.
func TestUnclearFaultMakesNoGap(t *testing.T) {
	now := time.Now()
	g := &faultGaps{addresses: []string{"0000:01:00.0", "0001:01:00.0", "0001:02:00.0"}, until: make([]time.Time, 3)}
	g.take(faultlog.Fault{Address: "0000:02:00.0", AnySegment: true}, now)
	for range reportBurst {
		g.take(faultlog.Fault{Address: "0000:01:00.0", AnySegment: true}, now)
	}
	require.EqualValues(t, math.MaxInt64, g.complete(0, now))
	require.EqualValues(t, math.MaxInt64, g.complete(1, now))
	require.Zero(t, g.complete(2, now), "the limit is reached by all")
}

// Suppressed reports count for the functions that were reported before.
func TestGapOfSuppressedReports(t *testing.T) {
	const a, b = "0000:01:00.0", "0000:02:00.0"
	g, start, fault := gapsOf()
	fault(b, 0)
	fault(a, 10*time.Second)
	g.take(faultlog.Fault{Lost: 4}, start.Add(time.Minute))
	require.Equal(t, 45*time.Second, g.complete(0, start.Add(time.Minute)), "it was over then")
	require.EqualValues(t, math.MaxInt64, g.complete(1, start.Add(time.Minute)))
	fault(a, time.Minute)
	g.take(faultlog.Fault{Lost: 1}, start.Add(61*time.Second))
	require.Zero(t, g.complete(0, start.Add(61*time.Second)))
	require.Equal(t, time.Second, g.complete(0, start.Add(62*time.Second)))

	// No function is known for the reports, so they count for all.
	g, start, _ = gapsOf()
	g.take(faultlog.Fault{Lost: 1}, start)
	require.Equal(t, time.Second, g.complete(1, start.Add(time.Second)))
	g, start, fault = gapsOf()
	fault(a, 0)
	g.take(faultlog.Fault{Lost: 1, Overrun: true}, start.Add(time.Hour))
	for i := range 2 {
		require.Equal(t, time.Second, g.complete(i, start.Add(time.Hour+time.Second)))
	}
}

func TestGapsAreBounded(t *testing.T) {
	const a = "0000:01:00.0"
	g, start, fault := gapsOf()
	for range 10 * maxRecentReports {
		fault(a, 0)
	}
	g.mu.Lock()
	require.Len(t, g.recent, maxRecentReports)
	g.mu.Unlock()
	require.Zero(t, g.complete(0, start))
}

// failing is a log that cannot be read for now.
type failing struct{ err error }

func (f *failing) Run(context.Context) error { return nil }
func (f *failing) Sync() error               { return f.err }
func (f *failing) Close() error              { return nil }

// A host without a record of faults says so; a record that cannot be read is an error, which
// ends with its cause.
func TestSettleFaultsFails(t *testing.T) {
	desk := newFaultDesk(newEpochFailure())
	d := &device{}
	_, err := d.settleFaults(t.Context(), desk)
	require.ErrorIs(t, err, gpuerr.Unimplemented)

	source := &failing{errors.New("read the kernel's log: input/output error")}
	g, _, fault := gapsOf()
	d.faults.watch = &faultWatch{source: source, gaps: g}
	_, err = d.settleFaults(t.Context(), desk)
	require.ErrorIs(t, err, gpuerr.IO)
	require.ErrorContains(t, err, "input/output error")
	source.err = nil
	complete, err := d.settleFaults(t.Context(), desk)
	require.NoError(t, err)
	require.EqualValues(t, math.MaxInt64, complete)
	for range reportBurst {
		fault("0000:01:00.0", 0)
	}
	complete, err = d.settleFaults(t.Context(), desk)
	require.NoError(t, err)
	require.Zero(t, complete)
}
