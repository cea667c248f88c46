package mock_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/outcome"
)

// Whatever ends a job ends one that is preempted, and one that preempts, and nobody else's.
func TestEndsInAPreemption(t *testing.T) {
	for _, o := range []mock.Options{{Workers: 1}, {Workers: 4, LaneOnly: true}} {
		d, err := mock.New(o)
		require.NoError(t, err)
		var mu sync.Mutex
		told := map[backend.JobID]int{}
		s := &hookSink{listSink: make(listSink, 4096), hook: func(c backend.Completion) {
			mu.Lock()
			defer mu.Unlock()
			told[c.ID]++
		}}
		require.NoError(t, d.Start(s))
		r := &preemptRig{listRig: &listRig{t: t, dev: d, told: s.listSink, iova: 1 << 20}}
		src, dst, small := r.memory(4<<20), r.memory(4<<20), r.memory(16<<10)
		random := rand.New(rand.NewPCG(1, 2))
		for round := range 60 {
			r.long, r.short = backend.Context{}, backend.Context{}
			long := r.submit(&r.long, []backend.Job{r.launch("spin"), r.launch("copy", src, dst)}[round%2])
			var shorts []backend.JobID
			for range 4 {
				shorts = append(shorts, r.submit(&r.short, fillJob(small, uint32(round))))
			}
			time.Sleep(time.Duration(random.IntN(200)) * time.Microsecond)
			lost := map[backend.JobID]bool{}
			switch round / 2 % 5 {
			case 0:
				d.Cancel(long)
			case 1:
				for _, id := range shorts {
					d.Cancel(id)
				}
			case 2:
				require.NoError(t, d.ResetContext(t.Context(), &r.long))
				lost[long] = true
			case 3:
				require.NoError(t, d.ResetContext(t.Context(), &r.short))
				for _, id := range shorts {
					lost[id] = true
				}
			default:
				require.NoError(t, d.Reset(t.Context()))
				for _, id := range append(shorts, long) {
					lost[id] = true
				}
			}
			d.Cancel(long)
			for _, id := range append(shorts, long) {
				require.Eventually(t, func() bool {
					mu.Lock()
					defer mu.Unlock()
					return lost[id] || told[id] == 1
				}, 20*time.Second, 10*time.Microsecond, "round %d, job %d", round, id)
			}
		}
		r.submit(&r.long, r.launch("spin"))
		for range 8 {
			r.submit(&r.short, fillJob(small, 1))
		}
		require.NoError(t, d.Close())
		for id, n := range told {
			require.Equal(t, 1, n, "job %d", id)
		}
	}
}

func TestPreemptionAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	d, s := started(t, mock.Options{})
	var long, short backend.Context
	spin := launch(t, d, "spin", nil)
	spin.ID, spin.Context = 1, &long
	require.NoError(t, d.Submit(spin))
	job := &backend.Job{ID: 2, Op: backend.OpFill, Context: &short, Spans: []backend.Span{{Host: make([]byte, 64)}}}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if err := d.Submit(job); err != nil {
			panic(err)
		}
		<-s.done
		if s.last.ID != 2 || s.last.Outcome != outcome.Success {
			panic(s.last.Outcome)
		}
	}))
}
