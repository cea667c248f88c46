package rehearsal_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/driver/rehearsal"
	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

// open makes the backend of a rehearsal.
func open(ddf.GrantSet) (backend.Backend, error) { return mock.New(mock.Options{}) }

// A rehearsal leaves nothing behind, whenever it is stopped: the driver continues
// with only what it was started with.
func TestNothingIsLeft(t *testing.T) {
	began := time.Now()
	require.NoError(t, rehearsal.Run(t.Context(), open)) // opens what the runtime opens for itself
	whole := time.Since(began)
	const moments = 40
	for i := range moments {
		before := leakcheck.Take()
		ctx, cancel := context.WithTimeout(t.Context(), whole*time.Duration(i)/moments)
		_ = rehearsal.Run(ctx, open) // ending early is an error
		cancel()
		require.Empty(t, before.Left(), "after a stop at %d/%d of it", i, moments)
	}
}
