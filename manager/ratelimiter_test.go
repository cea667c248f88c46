package manager

import (
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRateLimiter(t *testing.T) {
	now := time.Now()
	p := newRateLimiter(faultBurst, faultInterval, now)
	for range faultBurst {
		_, recorded := p.allow(now)
		require.True(t, recorded)
	}
	for range 100 {
		_, recorded := p.allow(now)
		require.False(t, recorded)
	}
	require.Equal(t, time.Second, p.wait(now.Add(faultInterval-time.Second)))
	require.Zero(t, p.wait(now.Add(faultInterval)))
	before, recorded := p.allow(now.Add(faultInterval))
	require.True(t, recorded)
	require.EqualValues(t, 100, before)
	require.Zero(t, p.takeSuppressed())
	_, recorded = p.allow(now.Add(faultInterval))
	require.False(t, recorded)
	require.EqualValues(t, 1, p.takeSuppressed())
}

// The violations of a client that gets one gate after the other killed are recorded at a
// limited rate, and counted.
func TestViolationsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testLog{}
		m := &Manager{cfg: Config{Policy: DevPolicy()}, audit: log, log: slog.New(slog.DiscardHandler)}
		s := &tenantServer{m: m, log: m.log, shares: gateShares(m, log, m.log)}
		s.tenant.Store(&Tenant{Name: "mallory"})
		for pid := range 10 * refusedBurst {
			s.gateViolated(pid)
		}
		require.Equal(t, append(slices.Repeat([]string{"sandbox.violation"}, refusedBurst), "audit.omitting"), log.kinds())
		require.Equal(t, "sandbox.violation mallory gate pid=1", log.text(1))
		time.Sleep(omittedEvery + time.Second)
		require.Equal(t, `audit.omitted mallory gates records=288 bytes=28156 kinds="sandbox.violation=288"`, log.text(refusedBurst+1))
		s.gateViolated(1000)
		require.Equal(t, "sandbox.violation mallory gate pid=1000", log.text(refusedBurst+2))
		s.shares.close()
	})
}
