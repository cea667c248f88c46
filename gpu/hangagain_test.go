package gpu

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/outcome"
)

// Hangs one after the other, with short work of others in between: each of them costs its
// queue, and never the function.
func TestHangsBesideShortWork(t *testing.T) {
	const bad = 0xBAD
	r := newRig(t, manyStrikes, withScript(mock.Fault{Kind: mock.FaultHang, Match: func(j *backend.Job) bool { return j.Pattern == bad }}))
	alice, bob := r.open("alice", shortDeadline), r.open("bob")
	a, b := buf(t, alice, 4096), buf(t, bob, 4096)
	qa, qb := r.queue(alice, 16, 0), r.queue(bob, 16, 0)
	for range 5 {
		qa.fill(a, 0, 4, bad)
		require.Equal(t, hangOutcome, qa.one().Outcome)
		for range 3 {
			qb.fill(b, 0, 4, 1)
			require.Equal(t, outcome.OK, qb.one().Outcome.Kind)
		}
	}
	require.Zero(t, r.dev.Status("").Resets)
}

// shortDeadline is the policy of the tenant that hangs, so that the test is short.
func shortDeadline(a *Attach) { a.MaxDeadline = 10 * time.Millisecond }
