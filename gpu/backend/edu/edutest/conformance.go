package edutest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/gpu/backend"
)

// Inapplicable are the tests of backendtest that need programs which the device does
// not have: it has copies, fills and its factorial. MemoryGone needs memory that the
// device does not reach. It runs no lists, and has no memory of its own for buffers.
var Inapplicable = []string{
	"Compute/CopyProgram", "Compute/FillProgram", "Compute/Vecadd", "Compute/VecaddInPlace", "Compute/Saxpy",
	"Compute/Matvec", "Compute/EveryGridCoversEverything", "Compute/LeastBindingCounts", "Compute/SameJobSameResult",
	"Trap/OneTooMany", "Trap/MatvecOutOfBounds", "Trap/Misaligned", "Trap/MemoryGone", "Queue/CancelLongKernel",
	"Context/OthersKeepTheirPlaces", "Context/SubmitAgain", "Context/Preemption", "Run/AsSubmit", "Run/Programs", "Run/Unfit", "Run/TrapEndsItsContext", "Run/Lists", "Run/ListEndsAtTrap", "Run/OnlyWhenIdle", "Run/ResetAndClose", "Run/ResetBeside", // it has no queue reset: a transfer cannot be stopped
	"List/InOrder", "List/EndsAtTrap", "List/CancelledWithin",
	"Local/ZeroInAndOut", "Local/Bounded", "Local/LostWithItsGroup", "Local/LostWithAReset",
}

// Span is DMA memory that is freed with the test, before what is cleaned up after it.
func Span(t *testing.T, dma ddf.DMAPool, bytes int) backend.Span {
	t.Helper()
	b, err := dma.Alloc(t.Context(), uint64(max(bytes, 1)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Free()) })
	return backend.Span{Host: b.Bytes()[:bytes:bytes], IOVA: uint64(b.IOVA())}
}
