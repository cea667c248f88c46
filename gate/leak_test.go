package gate

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/control/server/servertest"
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
	// Counts, not identities: an object that lets calls pass changes goroutines.
	count := func() [2]int {
		fds, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return [2]int{runtime.NumGoroutine(), len(fds)}
	}
	time.Sleep(300 * time.Millisecond) // the Go client finishes its calls late
	before, held := heap(), count()
	const lives = 150
	for range lives {
		life()
	}
	now := count()
	for end := time.Now().Add(10 * time.Second); (now[0] > held[0] || now[1] > held[1]) && time.Now().Before(end); now = count() {
		time.Sleep(20 * time.Millisecond)
	}
	require.LessOrEqual(t, now[0], held[0], "goroutines")
	require.LessOrEqual(t, now[1], held[1], "descriptors")
	require.Less(t, heap()-before, int64(lives*4<<10), "heap")
}
