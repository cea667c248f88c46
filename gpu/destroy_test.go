package gpu

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/outcome"
)

// TestDestroyWhileTheSessionCloses: closing an object waits for the goroutine that closes
// its session, and that one waits for those inside the session. So nobody may close an
// object from inside.
func TestDestroyWhileTheSessionCloses(t *testing.T) {
	r := newRig(t)
	for range 300 {
		s := r.open("a")
		b, err := s.CreateBuffer(t.Context(), 4096, 0)
		require.NoError(t, err)
		f, err := s.CreateFence(0)
		require.NoError(t, err)
		p, _, err := s.OpenProgram("spin")
		require.NoError(t, err)
		q, err := s.CreateQueue(2, 64)
		require.NoError(t, err)

		var all sync.WaitGroup
		start := make(chan struct{})
		for _, destroy := range []func() error{
			func() error { return s.DestroyBuffer(b.Handle) },
			func() error { return s.DestroyFence(f) },
			func() error { return s.CloseProgram(p) },
			func() error { return s.CloseQueue(q.Handle) },
			s.Close,
		} {
			all.Go(func() {
				<-start
				if err := destroy(); err != nil {
					assert.ErrorIs(t, err, gpuerr.Closed)
				}
			})
		}
		close(start)
		ended := make(chan struct{})
		go func() { all.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Fatal("a close waits for ever")
		}
	}
}

func TestDestroyWhatIsInUse(t *testing.T) {
	for _, ends := range []outcome.Outcome{cancelledOutcome, outcome.Success} {
		synctest.Test(t, func(t *testing.T) {
			hand := newHandBackend()
			hand.obedient = false
			r := newMemRig(t, withBackend(hand))
			s := r.open("alice")
			b, other, p := buf(t, s, 4096), buf(t, s, 4096), prog(t, s, "p")
			q := r.queue(s, 16, 4096)
			q.fill(b, 0, 4, 1)
			q.fill(other, 0, 4, 1)
			q.fill(b, 0, 4, 1) // waits for its turn
			q.launch(p, whole(other))
			synctest.Wait()
			destroyed := make(chan error, 1)
			go func() { destroyed <- s.DestroyBuffer(b) }()
			synctest.Wait()
			require.Empty(t, destroyed, "the device has it")
			require.ErrorIs(t, s.DestroyBuffer(b), gpuerr.Stale, "refused at once")
			hand.finish(hand.nth(t, 0), ends, 0)
			require.NoError(t, <-destroyed)
			closed := make(chan error, 1)
			go func() { closed <- s.CloseProgram(p) }()
			synctest.Wait()
			hand.finish(hand.nth(t, 1), outcome.Success, 0)
			synctest.Wait()
			if len(closed) == 0 { // the launch had reached the device
				hand.finish(hand.nth(t, 2), cancelledOutcome, 0)
			}
			require.NoError(t, <-closed)
			want := []outcome.Outcome{outcome.Success, outcome.Success, revokedOutcome, dependentOutcome}
			if ends.Kind != outcome.OK {
				want[0], want[1] = revokedOutcome, dependentOutcome
			}
			require.Equal(t, want, kinds(q.take(4)))
			r.close()
		})
	}
}
