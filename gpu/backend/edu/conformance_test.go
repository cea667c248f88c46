package edu_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/gpu/backend"
	"capgpu/gpu/backend/backendtest"
	"capgpu/gpu/backend/edu"
	"capgpu/gpu/backend/edu/edutest"
	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

// inapplicable are the tests of the suite that need programs which the device does not
// have: it has copies, fills and its factorial. MemoryGone needs memory that the
// device does not reach; TestMemoryGone is about that. It runs no bursts.
var inapplicable = []string{
	"Compute/CopyProgram", "Compute/FillProgram", "Compute/Vecadd", "Compute/VecaddInPlace", "Compute/Saxpy",
	"Compute/Matvec", "Compute/EveryGridCoversEverything", "Compute/LeastBindingCounts", "Compute/SameJobSameResult",
	"Trap/OneTooMany", "Trap/MatvecOutOfBounds", "Trap/Misaligned", "Trap/MemoryGone", "Queue/CancelLongKernel",
	"Burst/AsSubmit", "Burst/Programs", "Burst/Unfit", "Burst/TrapEndsItsContext", "Burst/OnlyWhenIdle", "Burst/ResetAndClose", "Burst/ResetBeside",
}

// span is DMA memory that is freed with the test, before the device is closed.
func span(t *testing.T, dma ddf.DMAPool, bytes int) backend.Span {
	t.Helper()
	b, err := dma.Alloc(t.Context(), uint64(max(bytes, 1)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Free()) })
	return backend.Span{Host: b.Bytes()[:bytes:bytes], IOVA: uint64(b.IOVA())}
}

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
			Alloc:     func(t *testing.T, bytes int) backend.Span { return span(t, m.Grants().DMA, bytes) },
			HoldBytes: 32 << 20,
			MaxBytes:  64 << 10,
			MaxRounds: 25,
		}
	}, inapplicable...)
}
