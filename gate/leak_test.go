package gate

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/control/server/servertest"
	"capgpu/internal/leakcheck"
	"capgpu/schema"
)

// A long life of a connection costs no more than a short one.
func TestNothingGrows(t *testing.T) {
	r := newRig(t, servertest.Options{})
	life := func() {
		opened, release := r.manager.OpenDevice(r.ctx, nil)
		s := opened.Session()
		made, release2 := s.CreateBuffer(r.ctx, bytesOf(4096, ""))
		mapped, release3 := made.Buffer().MapReadWrite(r.ctx, nil)
		program, release4 := s.OpenProgram(r.ctx, func(p schema.GpuProgramSession_openProgram_Params) error { return p.SetName("copy") })
		queue, release5 := s.CreateQueue(r.ctx, nil)
		fence, release6 := s.CreateFence(r.ctx, nil)
		signalled, release7 := fence.Fence().Signal(r.ctx, func(p schema.GpuFence_signal_Params) error { p.SetValue(1); return nil })
		for _, wait := range []func() error{
			func() error { _, err := mapped.Struct(); return err },
			func() error { _, err := program.Struct(); return err },
			func() error { _, err := queue.Struct(); return err },
			func() error { _, err := signalled.Struct(); return err },
		} {
			require.NoError(t, wait())
		}
		for _, f := range []func(){release7, release6, release5, release4, release3, release2} {
			f()
		}
		closed, release8 := s.Close(r.ctx, nil)
		_, err := closed.Struct()
		require.NoError(t, err)
		release8()
		release()
	}
	for range 20 {
		life()
	}
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, snapshot := heap(), leakcheck.Take()
	const lives = 150
	for range lives {
		life()
	}
	require.Empty(t, snapshot.Left(), "goroutines, descriptors or mappings of closed sessions")
	require.Less(t, heap()-before, int64(lives*4<<10), "heap")
}
