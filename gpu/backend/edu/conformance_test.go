package edu_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/edu"
	"capgpu/gpu/backend/edu/edutest"
	"capgpu/gpu/gputest/backendtest"
	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

// The device is a hasty one here; what takes its time is tested in fake time.
func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backendtest.Harness {
		m, err := edutest.New(edutest.Options{TransferTime: 10 * time.Microsecond})
		require.NoError(t, err)
		d, err := edu.New(m.Grants())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, m.Close()) })
		return backendtest.Harness{
			Backend:   d,
			Alloc:     func(t *testing.T, bytes int) backend.Span { return edutest.Span(t, m.Grants().DMA, bytes) },
			HoldBytes: 32 << 20,
			MaxBytes:  64 << 10,
			MaxRounds: 25,
		}
	}, edutest.Inapplicable...)
}
