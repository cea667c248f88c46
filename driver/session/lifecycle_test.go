package session

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/ddf/fake"
	"capgpu/gpu"
	"capgpu/gpu/backend/mock"
	"capgpu/gpuerr"
	"capgpu/ledger"
)

// A restricted session ends with its parent. This is a revocation, except when the
// driver ends and all sessions with it: then the peer may open another.
func TestEndOfAllIsNoRevocation(t *testing.T) {
	function, err := fake.New(fake.Options{})
	require.NoError(t, err)
	device, err := mock.New(mock.Options{})
	require.NoError(t, err)
	grants := function.Grants()
	core, err := gpu.New(gpu.Config{Info: grants.Device, Backend: device, DMA: grants.DMA})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, core.Close(context.Background()))
		require.NoError(t, function.Close())
	})

	above, err := core.OpenSession(gpu.Attach{Tenant: "test", TenantLimits: ledger.NoLimits(), Limits: ledger.NoLimits(), Facet: gpu.FacetFull})
	require.NoError(t, err)
	below, err := above.Restrict(gpu.Policy{Facet: gpu.FacetMemory, Limits: ledger.NoLimits()})
	require.NoError(t, err)
	require.NoError(t, above.Close())
	<-below.Done()

	ctx, stop := context.WithCancel(t.Context())
	served := &session{core: below, ctx: ctx}
	require.ErrorIs(t, served.ended(), gpuerr.Revoked)
	stop()
	require.ErrorIs(t, served.ended(), gpuerr.Disconnected)
}
