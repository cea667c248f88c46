package gate

import (
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/driver/session/sessiontest"
	"capgpu/internal/leakcheck"
	"capgpu/schema"
)

// A long-lived connection costs no more than a short one.
func TestNothingGrows(t *testing.T) {
	r := newRig(t, sessiontest.Options{})
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

	// The test compares counts, not identities: an object that lets calls pass
	// changes goroutines.
	count := func() [2]int {
		return [2]int{runtime.NumGoroutine(), leakcheck.Descriptors()}
	}

	// settled is the count once it has stayed the same for longer than the Go
	// client takes to finish its calls.
	settled := func() [2]int {
		now, since := count(), time.Now()
		for end := since.Add(10 * time.Second); time.Since(since) < 500*time.Millisecond && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
			if next := count(); next != now {
				now, since = next, time.Now()
			}
		}
		return now
	}

	held, before := settled(), heap()
	const lives = 400 // pools fill up meanwhile, by some 0.8 MB
	for round := 1; ; round++ {
		for range lives {
			life()
		}
		now := settled()
		if now[0] <= held[0] && now[1] <= held[1] {
			break
		}
		// One or two may be go-capnp's, between two calls. An object that is there
		// after every round, or grows with the rounds, is ours.
		grown := [2]int{now[0] - held[0], now[1] - held[1]}
		if grown[0] >= lives/50 || grown[1] > 0 || round == 3 {
			var stacks strings.Builder
			require.NoError(t, pprof.Lookup("goroutine").WriteTo(&stacks, 1))
			t.Fatalf("after %d lives there are %d goroutines and %d descriptors more\n%s", round*lives, grown[0], grown[1], &stacks)
		}
	}

	require.Less(t, heap()-before, int64(lives*4<<10), "heap")
}
