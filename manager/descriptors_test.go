package manager_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/internal/leakcheck"
	"capgpu/manager"
)

// A client of Cap'n Proto takes no more of the manager's descriptors than the limit of memory
// files leaves. Otherwise tenants with many gates and much memory would keep others from
// connecting, and the next driver from starting.
func TestDescriptorsOfGates(t *testing.T) {
	w := start(t, nil)
	w.driver(1)
	require.Eventually(t, w.GatesWait, patience, time.Millisecond)
	before := leakcheck.Descriptors()
	const gates = 10
	for range gates {
		_, err := openCapnp(t, w.dialCapnp("default"))
		require.NoError(t, err)
	}
	const ours = 1 // the client's
	require.Eventually(t, func() bool {
		return leakcheck.Descriptors()-before <= gates*(manager.ConnectionDescriptors-1+ours)
	}, patience, time.Millisecond, "one is for what is in passing")
}
