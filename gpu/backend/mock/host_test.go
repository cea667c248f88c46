package mock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/outcome"
)

// hostSink is told how long jobs go on.
type hostSink struct {
	*signalSink
	computed func(time.Duration)
}

func (s hostSink) Computed(d time.Duration) { s.computed(d) }

// The host hears of a job that goes on for long in its midst, where the job can be paused and
// stopped, and it does not go on before the host has returned.
func TestHostHearsOfLongJobs(t *testing.T) {
	large := backend.Span{Host: make([]byte, 64<<20)}
	for _, list := range []bool{false, true} {
		d, err := mock.New(mock.Options{Workers: 1})
		require.NoError(t, err)
		told := 0
		s := &signalSink{done: make(chan struct{}, 1)}
		require.NoError(t, d.Start(hostSink{s, func(ran time.Duration) {
			require.Positive(t, ran)
			if told++; told > 1 {
				return
			}
			still := make(chan struct{})
			d.Pause(func() { close(still) })
			d.Resume()
			d.Cancel(1)
		}}))
		job := &backend.Job{ID: 1, Op: backend.OpFill, Spans: []backend.Span{large}}
		if list {
			entry := *job
			job = &backend.Job{ID: 1, Op: backend.OpList, List: []backend.Job{entry, entry}}
		}
		require.NoError(t, d.Submit(job))
		<-s.done
		require.Equal(t, outcome.Outcome{Kind: outcome.Cancelled}, s.last.Outcome)
		require.Equal(t, 1, told)
		require.NoError(t, d.Close())
	}
}
