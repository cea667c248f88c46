package gpu

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/outcome"
)

// A job that gets on is not a hang, however long it takes, unless its caller or the
// policy says how long that may be.
func TestProgressIsNoHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := &steppingBackend{handBackend: newHandBackend()}
		r := newMemRig(t, withBackend(dev))
		s := r.open("alice")
		b, q := buf(t, s, 4096), r.queue(s, 16, 0)
		q.fill(b, 0, 4, 1)
		id := dev.nth(t, 0)
		for range 70 { // 7 s, in steps of 100 ms
			time.Sleep(100 * time.Millisecond)
			dev.steps.Add(1)
		}
		dev.finish(id, outcome.Success, 7*time.Second)
		requireOK(t, q.one())
		require.Zero(t, s.strikes.Load())
		r.close()
	})
}

// One that stops getting on is a hang as soon as any: the default deadline later.
func TestHangAfterProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := &steppingBackend{handBackend: newHandBackend()}
		r := newMemRig(t, withBackend(dev))
		s := r.open("alice")
		b, q := buf(t, s, 4096), r.queue(s, 16, 0)
		begin := time.Now()
		q.fill(b, 0, 4, 1)
		dev.nth(t, 0)
		for range 30 {
			time.Sleep(100 * time.Millisecond)
			dev.steps.Add(1)
		}
		require.Equal(t, hangOutcome, q.one().Outcome)
		require.InDelta(t, float64(3*time.Second+DefaultDeadline), float64(time.Since(begin)), float64(2*watchTick))
		require.EqualValues(t, 1, s.strikes.Load())
		q.fill(b, 0, 4, 1) // the next one starts with its own time
		begin = time.Now()
		require.Equal(t, hangOutcome, q.one().Outcome)
		require.InDelta(t, float64(DefaultDeadline), float64(time.Since(begin)), float64(2*watchTick))
		r.close()
	})
}

// The caller's own deadline and the policy's longest count in full. Missing them is
// no strike for work that gets on.
func TestDeadlineDespiteProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const longest = 5 * time.Second
		dev := &steppingBackend{handBackend: newHandBackend()}
		r := newMemRig(t, withBackend(dev))
		s := r.open("alice", func(a *Attach) { a.MaxDeadline = longest })
		b, p, q := buf(t, s, 4096), prog(t, s, "p"), r.queue(s, 16, 4096)
		stop := make(chan struct{})
		stepped := make(chan struct{})
		go func() {
			defer close(stepped)
			for !isClosed(stop) {
				time.Sleep(100 * time.Millisecond)
				dev.steps.Add(1)
			}
		}()
		for _, c := range []struct{ asked, had time.Duration }{
			{3 * time.Second, 3 * time.Second},
			{0, longest},
			{time.Hour / 2, longest},
		} {
			begin := time.Now()
			q.launchFor(c.asked, p, whole(b))
			require.Equal(t, hangOutcome, q.one().Outcome)
			require.InDelta(t, float64(c.had), float64(time.Since(begin)), float64(2*watchTick))
		}
		require.Zero(t, s.strikes.Load())
		close(stop)
		<-stepped
		r.close()
	})
}

// How long work may take in all is the policy's to say, for more or less than what
// is usual on the device.
func TestLongestDeadline(t *testing.T) {
	r := newMemRig(t, withBackend(&steppingBackend{handBackend: newHandBackend()}))
	plain := newMemRig(t, withBackend(newHandBackend()))
	require.Equal(t, DefaultMaxProgress, r.open("alice").Describe().MaxDeadline)
	require.Equal(t, DefaultMaxDeadline, plain.open("alice").Describe().MaxDeadline)
	for _, longest := range []time.Duration{time.Millisecond, time.Hour} {
		s := plain.open("alice", func(a *Attach) { a.MaxDeadline = longest })
		require.Equal(t, longest, s.Describe().MaxDeadline)
		all, stall := s.budget(0)
		require.Equal(t, min(longest, DefaultDeadline), all)
		require.Equal(t, all, stall)
		all, _ = s.budget(5_000_000)
		require.Equal(t, min(longest, 5*time.Second), all)
	}
}
