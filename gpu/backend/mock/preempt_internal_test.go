package mock

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/outcome"
	"capgpu/program/native"
)

// completions are what a sink is told.
type completions chan backend.Completion

func (s completions) Complete(c backend.Completion) { s <- c }
func (s completions) DeviceGone(string)             {}

// A list of which an entry cannot run the short way after all goes back to its place: what
// has run is not run again, whatever becomes of the rest.
func TestPreemptingListIsPutBack(t *testing.T) {
	for _, end := range []string{"run", "cancelled", "its round is over", "reset"} {
		t.Run(end, func(t *testing.T) {
			d, err := New(Options{LogEntries: 16})
			require.NoError(t, err)
			defer d.Close()
			told := make(completions, 16)
			require.NoError(t, d.Start(told))
			var long, short backend.Context
			p, err := d.Builtin("spin")
			require.NoError(t, err)
			require.NoError(t, d.Submit(&backend.Job{ID: 1, Op: backend.OpLaunch, Program: p, Grid: one(), Block: p.Info().Block, Context: &long, Round: 1}))

			var tried atomic.Int32
			c := copyWith(t, d, native.Body{
				Items: func(*native.Call) (uint64, bool) { return 1, true },
				Grain: func(*native.Call) uint64 { return 1 },
				Nanos: func(*native.Call) (uint64, bool) { return 100, true },
				Run:   func(*native.Call, uint64, uint64) bool { tried.Add(1); return false },
			})
			src, dst := backend.Span{Host: []byte("abcdefghijklmnop")}, backend.Span{Host: make([]byte, 16), IOVA: 4096}
			fill := backend.Span{Host: make([]byte, 16), IOVA: 8192}
			list := &backend.Job{ID: 2, Op: backend.OpList, Context: &short, Round: 1, List: []backend.Job{
				{Op: backend.OpFill, Spans: []backend.Span{fill}, Pattern: 1},
				{Op: backend.OpLaunch, Program: c, Grid: one(), Block: one(), Spans: []backend.Span{src, dst}},
				{Op: backend.OpFill, Spans: []backend.Span{fill}, Pattern: 2},
			}}
			for i := range list.List {
				var ok bool
				list.List[i].Ready, _, ok = d.Prepare(&list.List[i], nil)
				require.True(t, ok)
			}
			require.NoError(t, d.Submit(list))
			require.NoError(t, d.Submit(&backend.Job{ID: 3, Op: backend.OpFill, Context: &short, Round: 2, Spans: []backend.Span{fill}, Pattern: 3}))
			require.Eventually(t, func() bool {
				d.mu.Lock()
				defer d.mu.Unlock()
				return tried.Load() == 1 && !d.preemption.going
			}, 10*time.Second, 100*time.Microsecond)
			require.Empty(t, told)
			require.EqualValues(t, 1, fill.Host[0])
			fill.Host[0] = 9

			switch end {
			case "cancelled":
				d.Cancel(2)
			case "its round is over":
				short.Fail(1)
				d.Cancel(1)
				require.EqualValues(t, 1, (<-told).ID)
			case "reset":
				require.NoError(t, d.ResetContext(t.Context(), &short))
				d.Cancel(1)
				require.EqualValues(t, 1, (<-told).ID)
				require.Zero(t, dst.Host[0])
				return
			default:
				d.Cancel(1)
				require.EqualValues(t, 1, (<-told).ID)
			}
			got := <-told
			if got.ID == 3 { // the attendant tells of a list that is over
				require.NotEqual(t, "run", end)
				got = <-told
			}
			require.EqualValues(t, 2, got.ID)
			require.Positive(t, got.DeviceTime)
			if end == "run" {
				require.Equal(t, outcome.Success, got.Outcome)
				require.EqualValues(t, 3, got.Begun)
				require.Equal(t, src.Host, dst.Host)
				require.EqualValues(t, 3, (<-told).ID)
				log, _ := d.Log()
				require.EqualValues(t, 48, log[1].Bytes)
				return
			}
			require.Equal(t, cancelled, got.Outcome)
			require.EqualValues(t, 1, got.Begun)
			require.True(t, short.Over(1), "it had begun")
			require.Zero(t, dst.Host[0])
		})
	}
}
