package iommu

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The kernel's records carry the same clock.
func TestMonotonicIsTheKernelsClock(t *testing.T) {
	var t0, t1 unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &t0))
	now := monotonic()
	require.NoError(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &t1))
	require.GreaterOrEqual(t, now, uint64(t0.Nano()))
	require.LessOrEqual(t, now, uint64(t1.Nano()))
}

// An operation stays on the thread that it names, also when it sleeps.
func TestObservedStaysOnItsThread(t *testing.T) {
	r := &record{}
	for range 50 {
		require.NoError(t, observed(r, Op{Kind: OpMap}, func() error {
			before := unix.Gettid()
			runtime.Gosched()
			require.Equal(t, before, unix.Gettid())
			r.mu.Lock()
			defer r.mu.Unlock()
			require.Equal(t, before, r.began[len(r.began)-1].TID)
			return nil
		}))
	}
}
