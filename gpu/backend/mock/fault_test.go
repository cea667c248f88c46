package mock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// recorder is a sink that notes what it is told, in words.
type recorder struct {
	mu   sync.Mutex
	told []string
	last backend.Completion
}

func (r *recorder) Complete(c backend.Completion) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, fmt.Sprintf("%d %v", c.ID, c.Outcome))
	r.last = c
}

func (r *recorder) DeviceGone(string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, "gone")
}

// rig is a device within a synctest bubble: what the device does without being
// told more has happened when settle returns.
type rig struct {
	*mock.Device
	recorder
	t    *testing.T
	host []byte
}

// bubble runs f with a device of this script.
func bubble(t *testing.T, faults []mock.Fault, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d, err := mock.New(mock.Options{Script: mock.Script{Seed: 1, Faults: faults}, LogEntries: 64, Workers: 2})
		require.NoError(t, err)
		r := &rig{Device: d, t: t, host: make([]byte, 256)}
		require.NoError(t, d.Start(&r.recorder))
		defer func() { require.NoError(t, d.Close()) }()
		f(r)
	})
}

func (r *rig) span() backend.Span { return backend.Span{Host: r.host, IOVA: 1 << 32} }

func (r *rig) fill(id backend.JobID, pattern uint32) {
	r.t.Helper()
	require.NoError(r.t, r.Submit(&backend.Job{ID: id, Op: backend.OpFill, Spans: []backend.Span{r.span()}, Pattern: pattern}))
}

func (r *rig) spin(id backend.JobID) {
	r.t.Helper()
	p, err := r.Builtin("spin")
	require.NoError(r.t, err)
	require.NoError(r.t, r.Submit(&backend.Job{ID: id, Op: backend.OpLaunch, Program: p, Grid: backend.Dim3{X: 1, Y: 1, Z: 1}, Block: p.Info().Block}))
}

// settle waits until the device waits, and returns what the sink was told since
// the last time.
func (r *rig) settle() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	told := r.told
	r.told = nil
	return told
}

func (r *rig) entry(i int) mock.Execution {
	log, _ := r.Log()
	return log[i]
}

func TestHangIgnoresCancelUntilReset(t *testing.T) {
	bubble(t, []mock.Fault{{Kind: mock.FaultHang, Job: 2}}, func(r *rig) {
		r.fill(1, 0x01010101)
		r.fill(2, 0x02020202)
		r.fill(3, 0x03030303)
		require.Equal(t, []string{"1 ok"}, r.settle())
		r.Cancel(2)
		r.Cancel(2)
		time.Sleep(time.Hour)
		require.Empty(t, r.settle())
		require.Equal(t, byte(1), r.host[0], "a hung job has no effect")
		r.Cancel(3)
		require.Equal(t, []string{"3 cancelled"}, r.settle(), "a queued job does not wait for a hung one")
		require.NoError(t, r.Reset(r.t.Context()))
		require.Empty(t, r.settle())
		require.Equal(t, mock.EndedByReset, r.entry(1).End)
		require.Equal(t, mock.CancelledInQueue, r.entry(2).End)
		require.Equal(t, time.Hour, r.entry(1).EndedAt-r.entry(1).StartedAt)
		r.fill(4, 4)
		require.Equal(t, []string{"4 ok"}, r.settle())
	})
}

func TestHangEndsWithClose(t *testing.T) {
	bubble(t, []mock.Fault{{Kind: mock.FaultHang}}, func(r *rig) {
		r.fill(1, 1)
		require.Empty(t, r.settle())
		require.NoError(t, r.Close())
		require.Empty(t, r.settle())
	})
}

func TestSlow(t *testing.T) {
	slow := mock.Fault{Kind: mock.FaultSlow, Duration: mock.Duration(20 * time.Millisecond)}
	bubble(t, []mock.Fault{slow}, func(r *rig) {
		r.fill(1, 0x01010101)
		time.Sleep(19 * time.Millisecond)
		require.Empty(t, r.settle())
		require.Equal(t, mock.Outstanding, r.entry(0).End)
		time.Sleep(time.Millisecond)
		require.Equal(t, []string{"1 ok"}, r.settle())
		require.Equal(t, 20*time.Millisecond, r.last.DeviceTime)
		require.Equal(t, byte(1), r.host[0])

		r.fill(2, 0x02020202)
		time.Sleep(5 * time.Millisecond)
		r.Cancel(2)
		require.Equal(t, []string{"2 cancelled"}, r.settle())
		require.Equal(t, 5*time.Millisecond, r.last.DeviceTime)
		require.Equal(t, byte(1), r.host[0])

		r.fill(3, 0x03030303)
		time.Sleep(5 * time.Millisecond)
		require.NoError(t, r.Reset(r.t.Context()))
		require.Empty(t, r.settle())
		require.Equal(t, byte(1), r.host[0])
	})
}

func TestErrorCompletion(t *testing.T) {
	bubble(t, []mock.Fault{{Kind: mock.FaultErrorCompletion, Times: 1}}, func(r *rig) {
		r.fill(1, 1)
		r.fill(2, 0x02020202)
		require.Equal(t, []string{"1 failed: deviceError", "2 ok"}, r.settle())
		require.Zero(t, r.entry(0).Bytes)
		require.EqualValues(t, 256, r.entry(1).Bytes)
	})
}

func TestLostCompletion(t *testing.T) {
	bubble(t, []mock.Fault{{Kind: mock.FaultLostCompletion, Job: 1}}, func(r *rig) {
		r.fill(1, 0x01010101)
		require.Empty(t, r.settle())
		require.Equal(t, byte(1), r.host[0], "the work was done")
		require.Equal(t, mock.Finished, r.entry(0).End)
		r.Cancel(1)
		require.Empty(t, r.settle())
		r.fill(2, 2)
		require.Equal(t, []string{"2 ok"}, r.settle())
		require.NoError(t, r.Reset(r.t.Context()))
		require.Empty(t, r.settle())
	})
}

func TestDuplicateCompletion(t *testing.T) {
	bubble(t, []mock.Fault{{Kind: mock.FaultDuplicateCompletion, Job: 1}}, func(r *rig) {
		r.fill(1, 1)
		r.fill(2, 2)
		require.Equal(t, []string{"1 ok", "1 ok", "2 ok"}, r.settle())
	})
}

func TestWrongJobID(t *testing.T) {
	bubble(t, []mock.Fault{{Kind: mock.FaultWrongJobID, Job: 1}}, func(r *rig) {
		r.fill(1, 1)
		r.fill(2, 2)
		require.Equal(t, []string{"9223372036854778797 ok", "2 ok"}, r.settle())
	})
}

func TestStrayDMA(t *testing.T) {
	bubble(t, []mock.Fault{{Kind: mock.FaultStrayDMA, Job: 1}}, func(r *rig) {
		r.fill(1, 0x01010101)
		require.Equal(t, []string{"1 failed: deviceError"}, r.settle())
		require.EqualValues(t, 1<<32+256, r.entry(0).StrayIOVA, "the first byte behind the span")
		require.Zero(t, r.host[0])
	})
}

func TestDeviceGone(t *testing.T) {
	bubble(t, []mock.Fault{{Kind: mock.FaultDeviceGone, Job: 2}}, func(r *rig) {
		r.fill(1, 0x01010101)
		r.fill(2, 0x02020202)
		r.fill(3, 0x03030303)
		require.Equal(t, []string{"1 ok", "gone"}, r.settle())
		require.Equal(t, byte(1), r.host[0])
		require.ErrorIs(t, r.Submit(&backend.Job{ID: 4, Op: backend.OpFill, Spans: []backend.Span{r.span()}}), gpuerr.DeviceLost)
		r.Cancel(3)
		require.ErrorIs(t, r.Reset(r.t.Context()), gpuerr.DeviceLost)
		require.Empty(t, r.settle(), "no completion comes from a device that is gone, and it goes once")
		require.Equal(t, mock.EndedGone, r.entry(1).End)
		require.Equal(t, mock.EndedGone, r.entry(2).End)
		require.False(t, r.entry(2).Started)
		require.NoError(t, r.Close())
		require.ErrorIs(t, r.Reset(r.t.Context()), gpuerr.Closed)
	})
}

func TestWrongWritePointer(t *testing.T) {
	bubble(t, []mock.Fault{{Kind: mock.FaultWrongWritePointer, Job: 3}}, func(r *rig) {
		for id := backend.JobID(1); id <= 4; id++ {
			r.fill(id, 1)
		}
		want := []string{"1 ok", "2 ok", "3 ok"}
		// Once around the ring of 16: old completions, then entries never written.
		want = append(want, "1 ok", "2 ok", "3 ok")
		for range 13 {
			want = append(want, "0 pending")
		}
		want = append(want, "4 ok")
		require.Equal(t, want, r.settle())
	})
}

func TestLateCompletion(t *testing.T) {
	bubble(t, []mock.Fault{{Kind: mock.FaultLateCompletion, Job: 1}}, func(r *rig) {
		r.fill(1, 0x01010101)
		r.fill(2, 2)
		require.Equal(t, []string{"2 ok"}, r.settle())
		require.NoError(t, r.Reset(r.t.Context()))
		require.Empty(t, r.settle())
		r.fill(3, 3)
		require.Equal(t, []string{"1 ok", "3 ok"}, r.settle())
		require.NoError(t, r.Reset(r.t.Context()))
		r.fill(4, 4)
		require.Equal(t, []string{"4 ok"}, r.settle())
	})
}

func TestFaultsFindTheirJobs(t *testing.T) {
	bubble(t, []mock.Fault{
		{Kind: mock.FaultErrorCompletion, Op: "copy", Times: 1},
		{Kind: mock.FaultStrayDMA, Match: func(j *backend.Job) bool { return j.Pattern == 9 }},
		{Kind: mock.FaultDuplicateCompletion, Program: "trap"},
	}, func(r *rig) {
		r.fill(1, 1)
		for id := backend.JobID(2); id <= 3; id++ {
			require.NoError(t, r.Submit(&backend.Job{ID: id, Op: backend.OpCopy, Spans: []backend.Span{r.span(), r.span()}}))
		}
		r.fill(4, 9)
		p, err := r.Builtin("trap")
		require.NoError(t, err)
		one := backend.Dim3{X: 1, Y: 1, Z: 1}
		require.NoError(t, r.Submit(&backend.Job{ID: 5, Op: backend.OpLaunch, Program: p, Grid: one, Block: one, Spans: []backend.Span{r.span()}}))
		trap := "5 failed: trap outOfBounds binding=0 offset=256 workgroup=0 lane=0"
		require.Equal(t, []string{"1 ok", "2 failed: deviceError", "3 ok", "4 failed: deviceError", trap, trap}, r.settle())
	})
}

func TestProbabilityFollowsTheSeed(t *testing.T) {
	play := func(seed uint64) (hits []uint64) {
		d, err := mock.New(mock.Options{LogEntries: 1000, Script: mock.Script{Seed: seed, Faults: []mock.Fault{{Kind: mock.FaultErrorCompletion, Probability: 0.25}}}})
		require.NoError(t, err)
		defer d.Close()
		s := &signalSink{done: make(chan struct{}, 1)}
		require.NoError(t, d.Start(s))
		span := backend.Span{Host: make([]byte, 4)}
		for id := backend.JobID(1); id <= 1000; id++ {
			require.NoError(t, d.Submit(&backend.Job{ID: id, Op: backend.OpFill, Spans: []backend.Span{span}}))
			<-s.done
		}
		log, forgotten := d.Log()
		require.Zero(t, forgotten)
		for _, e := range log {
			if e.Fault == mock.FaultErrorCompletion {
				require.Equal(t, outcome.DeviceError, e.Outcome.Cause)
				hits = append(hits, e.Ordinal)
			}
		}
		return hits
	}
	first := play(1)
	require.InDelta(t, 250, len(first), 60)
	require.Equal(t, first, play(1))
	require.NotEqual(t, first, play(2))
}

func TestSpinTakesDeviceTimeNotHostTime(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.spin(1)
		time.Sleep(time.Hour)
		require.Empty(t, r.settle())
		r.Cancel(1)
		require.Equal(t, []string{"1 cancelled"}, r.settle())
		require.Equal(t, time.Hour, r.last.DeviceTime)
	})
}

func TestResetGivesUpWithItsContext(t *testing.T) {
	// A sink that blocks breaks its contract; Reset must still end.
	synctest.Test(t, func(t *testing.T) {
		d, err := mock.New(mock.Options{Workers: 1})
		require.NoError(t, err)
		s := &blockingSink{release: make(chan struct{})}
		require.NoError(t, d.Start(s))
		span := backend.Span{Host: make([]byte, 4)}
		require.NoError(t, d.Submit(&backend.Job{ID: 1, Op: backend.OpFill, Spans: []backend.Span{span}}))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var resetErr error
		done := make(chan struct{})
		go func() {
			defer close(done)
			resetErr = d.Reset(ctx)
		}()
		synctest.Wait()
		require.ErrorIs(t, d.Submit(&backend.Job{ID: 2, Op: backend.OpFill, Spans: []backend.Span{span}}), gpuerr.Busy,
			"a job that is taken during a reset is of neither side of it")
		<-done
		require.ErrorIs(t, resetErr, gpuerr.Busy)
		close(s.release)
		require.NoError(t, d.Reset(t.Context()))
		require.NoError(t, d.Submit(&backend.Job{ID: 2, Op: backend.OpFill, Spans: []backend.Span{span}}))
		require.NoError(t, d.Close())
	})
}

type blockingSink struct{ release chan struct{} }

func (s *blockingSink) Complete(backend.Completion) { <-s.release }

func (s *blockingSink) DeviceGone(string) {}
