package gpu

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

// A wait that is refused, for whatever reason, orders nothing: what was to come after it
// does not run.
func TestRefusedWaitHoldsBackItsDependents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand))
		one := ledger.NoLimits()
		one[ledger.InFlight] = 1
		for name, c := range map[string]struct {
			limits ledger.Limits
			before bool // an entry that is in flight
			wait   ring.Entry
			code   gpuerr.Code
		}{
			"its form":    {ledger.NoLimits(), false, ring.Entry{Op: ring.OpWait, Object: 1, D: 1}, gpuerr.Invalid},
			"flags":       {ledger.NoLimits(), false, ring.Entry{Op: ring.OpWait, Flags: 0x80, Object: 1}, gpuerr.Invalid},
			"its fence":   {ledger.NoLimits(), false, ring.Entry{Op: ring.OpWait, Object: 1}, gpuerr.Stale},
			"what it has": {one, true, ring.Entry{Op: ring.OpWait, Object: 1}, gpuerr.Quota},
		} {
			s := r.open("alice", func(a *Attach) { a.Limits = c.limits })
			b, f := buf(t, s, 4096), newFence(t, s, 0)
			q := r.queue(s, 16, 0)
			if c.before {
				q.fill(b, 0, 4, 1)
				synctest.Wait()
			}
			q.push(c.wait, nil, nil)
			synctest.Wait()
			if c.before {
				hand.mu.Lock()
				id := hand.jobs[len(hand.jobs)-1].ID
				hand.mu.Unlock()
				hand.finish(id, outcome.Success, 0)
				requireOK(t, q.one())
			}
			refused := q.one()
			require.Equal(t, c.code, refused.Code, name)
			hand.mu.Lock()
			jobs := len(hand.jobs)
			hand.mu.Unlock()
			q.fill(b, 0, 4, 1)
			require.Equal(t, dependentOutcome, q.one().Outcome, name)
			q.signal(f, 1)
			require.Equal(t, outcome.Failed, q.one().Outcome.Kind, name)
			hand.mu.Lock()
			require.Len(t, hand.jobs, jobs, name)
			hand.mu.Unlock()
			require.NoError(t, s.Close())
		}
		r.close()
	})
}
