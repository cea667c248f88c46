package gpu

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/handles"
	"capgpu/outcome"
)

// Two tenants that always have work share the device by weight, however long
// their jobs are; a tenant gains nothing by opening more sessions.
func TestFairShare(t *testing.T) {
	for _, tc := range []struct {
		weights  [2]uint32
		sessions [2]int
		lengths  [2]time.Duration
	}{
		{[2]uint32{1, 1}, [2]int{1, 1}, [2]time.Duration{time.Millisecond, time.Millisecond}},
		{[2]uint32{1, 1}, [2]int{1, 1}, [2]time.Duration{9 * time.Millisecond, time.Millisecond}},
		{[2]uint32{3, 1}, [2]int{1, 1}, [2]time.Duration{time.Millisecond, 2 * time.Millisecond}},
		{[2]uint32{1, 1}, [2]int{4, 1}, [2]time.Duration{time.Millisecond, time.Millisecond}},
	} {
		t.Run(fmt.Sprint(tc), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hand := newHandBackend()
				hand.limits.MaxJobs = 2 // a long FIFO would be the device's order, not ours
				r := newMemRig(t, withBackend(hand))
				var used [2]time.Duration
				owner := map[uint64]int{} // by IOVA
				for i := range 2 {
					for range tc.sessions[i] {
						s := r.open([]string{"alice", "bob"}[i], func(a *Attach) { a.Weight = tc.weights[i] })
						h := buf(t, s, 4096)
						b, err := handles.Lookup[buffer](s.handles, h)
						require.NoError(t, err)
						owner[b.iova] = i
						q := r.queue(s, 4096, 0)
						for range 1000 {
							q.fill(h, 0, 4, 1)
						}
					}
				}
				synctest.Wait()
				for n := 0; used[0]+used[1] < 400*time.Millisecond; n++ {
					id := hand.nth(t, n)
					hand.mu.Lock()
					who := owner[hand.jobs[n].Spans[0].IOVA]
					hand.mu.Unlock()
					time.Sleep(tc.lengths[who])
					used[who] += tc.lengths[who]
					hand.finish(id, outcome.Success, tc.lengths[who])
					synctest.Wait()
				}
				want := float64(tc.weights[0]) / float64(tc.weights[1])
				require.InEpsilon(t, want, float64(used[0])/float64(used[1]), 0.15, "%v", used)
				r.close()
			})
		})
	}
}

// However many sessions a tenant has full of work, another's job is next but two.
func TestTenantCannotFillTheDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand))
		for range 5 {
			s := r.open("alice")
			b, q := buf(t, s, 4096), r.queue(s, 16, 0)
			for range 5 {
				q.fill(b, 0, 4, 1)
			}
		}
		synctest.Wait()
		hand.nth(t, sentLeast-1)
		bob := r.open("bob")
		b, q := buf(t, bob, 4096), r.queue(bob, 16, 0)
		q.fill(b, 0, 4, 2)
		hand.nth(t, sentLeast)
		synctest.Wait()
		hand.mu.Lock()
		require.Len(t, hand.jobs, sentLeast+1)
		require.EqualValues(t, 2, hand.jobs[sentLeast].Pattern, "it did not wait for a place")
		hand.mu.Unlock()
		r.close()
	})
}
