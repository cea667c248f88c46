package manager

import (
	"log/slog"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPace(t *testing.T) {
	now := time.Now()
	p := newPace(faultBurst, faultInterval, now)
	for range faultBurst {
		_, recorded := p.enter(now)
		require.True(t, recorded)
	}
	for range 100 {
		_, recorded := p.enter(now)
		require.False(t, recorded)
	}
	require.Equal(t, time.Second, p.wait(now.Add(faultInterval-time.Second)))
	require.Zero(t, p.wait(now.Add(faultInterval)))
	before, recorded := p.enter(now.Add(faultInterval))
	require.True(t, recorded)
	require.EqualValues(t, 100, before)
	require.Zero(t, p.rest())
	_, recorded = p.enter(now.Add(faultInterval))
	require.False(t, recorded)
	require.EqualValues(t, 1, p.rest())
}

// A client that has one gate after the other killed is recorded now and then, and
// counted.
func TestViolationsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		audit := &testLog{}
		s := &tenantServer{
			m:          &Manager{cfg: Config{Policy: DevPolicy()}, audit: audit},
			log:        slog.New(slog.DiscardHandler),
			violations: newPace(violationBurst, violationInterval, time.Now()),
		}
		s.tenant.Store(&Tenant{Name: "mallory"})
		for pid := range 10 * violationBurst {
			s.gateViolated(pid)
		}
		require.Len(t, audit.records, violationBurst)
		for i, r := range audit.records {
			require.Equal(t, "sandbox.violation mallory gate pid="+strconv.Itoa(i), r.Kind+" "+r.Tenant+" "+r.Detail)
		}
		time.Sleep(violationInterval)
		s.gateViolated(1000)
		require.Len(t, audit.records, violationBurst+2)
		counted, next := audit.records[violationBurst], audit.records[violationBurst+1]
		require.Equal(t, "sandbox.violations mallory gate violations=288", counted.Kind+" "+counted.Tenant+" "+counted.Detail)
		require.Equal(t, "gate pid=1000", next.Detail)
	})
}
