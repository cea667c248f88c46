package gpu

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/outcome"
)

// standStill has the machine stand still for so long: runDevice finds that it is so late.
// The clock of the test goes on by nothing.
func (r *reactor) standStill(d time.Duration) {
	r.mail.post(func() { r.recovery.looksAt = time.Now().Add(-d) })
}

// Work that ran when the machine stood still gets the time that it did not have.
func TestStandstillIsNobodysFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice")
		b, p := buf(t, s, 4096), prog(t, s, "p")
		q := r.queue(s, 16, 4096)
		begin := time.Now()
		q.launchFor(30*time.Millisecond, p, whole(b))
		id := hand.nth(t, 0)
		time.Sleep(25 * time.Millisecond)
		r.dev.reactor.standStill(10 * time.Second)
		// It began 25 ms ago, of which the device saw none: all of it is before it again.
		time.Sleep(25 * time.Millisecond)
		hand.finish(id, outcome.Success, 0)
		requireOK(t, q.one())
		require.Equal(t, 50*time.Millisecond, time.Since(begin))
		// A job that hangs is found all the same.
		begin = time.Now()
		q.launchFor(30*time.Millisecond, p, whole(b))
		hand.nth(t, 1)
		time.Sleep(15 * time.Millisecond)
		r.dev.reactor.standStill(10 * time.Second)
		require.Equal(t, hangOutcome, q.one().Outcome)
		require.InDelta(t, 45*time.Millisecond, time.Since(begin), float64(2*watchTick))
		r.close()
	})
}

// A machine that is busy is no excuse, and one that stands still again and again is one for so
// often.
func TestStandstillsAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		late, least, most time.Duration
	}{
		"busy":            {standstill - 3*time.Millisecond, 30 * time.Millisecond, 30 * time.Millisecond},
		"again and again": {10 * time.Second, maxStills * watchTick, 30*time.Millisecond + 2*(maxStills+1)*watchTick},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hand := newHandBackend()
				r := newMemRig(t, withBackend(hand))
				s := r.open("alice")
				b, p := buf(t, s, 4096), prog(t, s, "p")
				q := r.queue(s, 16, 4096)
				begin := time.Now()
				q.launchFor(30*time.Millisecond, p, whole(b))
				hand.nth(t, 0)
				over := make(chan struct{})
				go func() {
					for range 1000 { // before each of its looks
						select {
						case <-over:
							return
						case <-time.After(watchTick):
						}
						r.dev.reactor.standStill(c.late)
					}
				}()
				require.Equal(t, hangOutcome, q.one().Outcome)
				close(over)
				took := time.Since(begin)
				require.GreaterOrEqual(t, took, c.least)
				require.LessOrEqual(t, took, c.most)
				r.close()
			})
		})
	}
}
