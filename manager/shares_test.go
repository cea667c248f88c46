package manager

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
)

// What one tenant makes its driver record does not keep others out of the log,
// and what is missing is told.
func TestTenantCannotBlindTheLog(t *testing.T) {
	g := grant(t, grantTestLimits())
	log := dialGrants(t, g).GrantSet().Audit
	flood := "tenant=alice " + strings.Repeat("x", 900)
	var err error
	n := 0
	for ; err == nil; n++ {
		err = log.Append("queue.create", flood)
	}
	require.ErrorIs(t, err, gpuerr.Quota)
	require.Equal(t, "auditBytes", gpuerr.From(err).Resource)
	require.Greater(t, n, 1000)
	require.NoError(t, log.Append("queue.create", "tenant=bob session=1"))
	require.NoError(t, log.Append("device.reset", "of the driver itself"))
	g.stop(t)
	var told []string
	for _, r := range g.log.records {
		if r.Kind == "audit.refused" {
			told = append(told, r.Detail)
		}
	}
	require.Len(t, told, 1)
	require.Contains(t, told[0], "mock0 epoch=1 tenant=alice records=1 bytes=")
}

func TestAuditShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAuditShares(1000, []*Tenant{{Name: "alice"}, {Name: "bob"}})
		spend := func(detail string, bytes uint64) error { _, err := s.spend(detail, bytes); return err }
		require.NoError(t, spend("tenant=alice x", 1000))
		require.Error(t, spend("tenant=alice", 1))
		require.NoError(t, spend("tenant=bob", 1000))
		// Names that the policy does not know, or in another place, are the driver's.
		require.NoError(t, spend("tenant=alicex", 400))
		require.NoError(t, spend("x tenant=alice", 400))
		require.NoError(t, spend("", 200))
		require.Error(t, spend("tenant=mallory", 1))

		time.Sleep(shareWindow / 10)
		gap, err := s.spend("tenant=alice", 100)
		require.NoError(t, err)
		require.Equal(t, "tenant=alice records=1 bytes=1", gap)
		require.Error(t, spend("tenant=alice", 1))
		require.Equal(t, []string{"records=1 bytes=1", "tenant=alice records=1 bytes=1"}, s.gaps())
		require.Empty(t, s.gaps())
		time.Sleep(100 * shareWindow)
		require.Error(t, spend("tenant=bob", 1001), "a share does not grow beyond itself")
	})
}
