package gpu

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/mock"
	"capgpu/program/library"
)

// What was loaded is gone once it is closed, though a queue launched it and does nothing
// any more, or other things.
func TestClosedProgramIsForgotten(t *testing.T) {
	dev, err := mock.New(mock.Options{})
	require.NoError(t, err)
	r := newMemRig(t, withBackend(dev))
	s := r.open("alice")
	a, b := buf(t, s, 4096), buf(t, s, 4096)
	f := newFence(t, s, 0)
	bundle, ok := library.Bundle("copy")
	require.True(t, ok)
	up := buf(t, s, uint64(len(bundle)))
	copy(host(t, s, up), bundle)
	idle, other, waits := r.queue(s, 256, 0), r.queue(s, 256, 0), r.queue(s, 256, 0)
	var gone [3]chan struct{}
	for i := range gone {
		gone[i] = make(chan struct{})
		func() {
			h, _, err := s.LoadProgram(t.Context(), up, 0, uint64(len(bundle)))
			require.NoError(t, err)
			p, err := lookup[program](s.handles, h)
			require.NoError(t, err)
			runtime.AddCleanup(p.info, func(c chan struct{}) { close(c) }, gone[i])
			for _, q := range []*client{idle, other, waits} {
				for range 2 {
					q.launch(h, whole(a), whole(b))
					requireOK(t, q.one())
				}
			}
			other.fill(a, 0, 4, 1)
			requireOK(t, other.one())
			if i == len(gone)-1 {
				waits.wait(f, 1)
			}
			require.NoError(t, s.CloseProgram(h))
		}()
	}
	for i, c := range gone {
		require.Eventually(t, func() bool { runtime.GC(); return isClosed(c) }, 10*time.Second, time.Millisecond, "program %d", i)
	}
	require.NoError(t, s.SignalFence(f, 1))
	requireOK(t, waits.one())
}
