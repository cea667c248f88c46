package gpu

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/outcome"
)

// Every rung of the ladder: how far a fault goes, how the guilty work ends, and what
// becomes of another tenant's that the device has as well. All within the hang bound.
func TestLadder(t *testing.T) {
	for _, rung := range []struct {
		name   string
		fault  mock.FaultKind
		step   RecoveryStep
		guilty outcome.Outcome
		beside outcome.Outcome
	}{
		{"cancel", mock.FaultSlow, outcome.Cancelling, hangOutcome, outcome.Success},
		{"queue", mock.FaultHang, outcome.QueueReset, hangOutcome, outcome.Success},
		{"function", mock.FaultHangFunction, outcome.FunctionReset, hangOutcome, resetOutcome},
		{"respawn", mock.FaultHangForever, outcome.Respawn, lostOutcome, lostOutcome},
	} {
		t.Run(rung.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fault := mock.Fault{Kind: rung.fault, Times: 1}
				if rung.fault == mock.FaultSlow {
					fault.Duration = mock.Duration(time.Hour)
				}
				r := newMemRig(t, withScript(fault))
				alice, bob := r.open("alice"), r.open("bob")
				a, b := buf(t, alice, 4096), buf(t, bob, 256<<10)
				qa, qb := r.queue(alice, 16, 0), r.queue(bob, 16, 0)
				var mu sync.Mutex
				var seen []RecoveryStep
				watching, end := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				wg.Go(func() {
					for {
						select {
						case <-r.dev.RecoveryChanged():
							mu.Lock()
							seen = append(seen, r.dev.Recovery().Step)
							mu.Unlock()
						case <-watching.Done():
							return
						}
					}
				})
				began := time.Now()
				qa.fill(a, 0, 64, 1)
				time.Sleep(10 * time.Millisecond)
				qb.fill(b, 0, 256<<10, 2) // the device has it, behind
				require.Equal(t, rung.guilty, qa.one().Outcome)
				took := time.Since(began) - DefaultDeadline
				require.LessOrEqual(t, took, DefaultHangBound)
				t.Logf("typed %v after the deadline", took)
				require.Equal(t, rung.beside, qb.one().Outcome)
				end()
				wg.Wait()
				st := r.dev.Recovery()
				require.Equal(t, rung.step, st.Last)
				require.EqualValues(t, 1, st.Incidents)
				if rung.step != outcome.Respawn {
					require.Equal(t, outcome.RecoveryNone, st.Step, "it is over")
					qa.fill(a, 0, 64, 3)
					requireOK(t, qa.one())
				}
				if rung.step > outcome.Cancelling { // else it is over as soon as it begins
					require.Contains(t, seen, outcome.Cancelling)
				}
				all := r.dev.Status("").Recovery
				require.Equal(t, "alice", all.Last.Tenant)
				require.Equal(t, "deadline missed", all.Last.Cause)
				for step := outcome.Cancelling; step <= rung.step; step++ {
					require.EqualValues(t, 1, all.Steps[step.String()], step)
				}
				require.Empty(t, r.dev.Status("bob").Recovery.Last.Tenant, "whose it was is nobody else's to know")
				require.Equal(t, "alice", r.dev.Status("alice").Recovery.Last.Tenant)
				_ = r.dev.Close(t.Context())
				r.close()
			})
		})
	}
}

// deafBackend says that it has ended a session's work, and goes on hanging.
type deafBackend struct{ *handBackend }

func (deafBackend) ResetContext(context.Context, *backend.Context) error { return nil }

// A queue reset after which nothing ends was no help: the next hang costs the function. But
// one tenant's work of several sessions may hang one after the other.
func TestFruitlessQueueReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		hand.obedient = false
		r := newMemRig(t, withBackend(deafBackend{hand}), manyStrikes)
		s, bob := r.open("alice"), r.open("bob")
		b, q := buf(t, s, 4096), r.queue(s, 16, 0)
		o, other := buf(t, bob, 4096), r.queue(bob, 16, 0)
		hang := func(c *client, b Handle, step RecoveryStep) {
			c.fill(b, 0, 4, 1)
			require.Equal(t, hangOutcome, c.one().Outcome)
			require.Equal(t, step, r.dev.Recovery().Last)
		}
		hang(q, b, outcome.QueueReset)
		hang(q, b, outcome.QueueReset)
		hang(q, b, outcome.FunctionReset)
		hang(q, b, outcome.QueueReset)
		hang(other, o, outcome.FunctionReset)
		require.EqualValues(t, 5, r.dev.Recovery().Incidents)
		r.close()
	})
}
