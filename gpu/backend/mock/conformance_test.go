package mock_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/backendtest"
	"capgpu/gpu/backend/mock"
	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

func TestConformance(t *testing.T) {
	for _, workers := range []int{1, 4} {
		t.Run(fmt.Sprintf("workers=%d", workers), func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) backendtest.Harness {
				d, err := mock.New(mock.Options{Workers: workers, LogEntries: 8, LogDigests: true})
				require.NoError(t, err)
				return backendtest.Harness{Backend: d}
			})
		})
	}
}
