package mock_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/outcome"
)

// Whatever computes stands still in its midst: nothing is written in a pause, the same
// program runs in bursts beside it, and the result is as without.
func TestPauseInTheMidst(t *testing.T) {
	const large, small = 8 << 20, 256
	for _, o := range []mock.Options{{Workers: 1}, {Workers: 4}, {Workers: 1, LaneOnly: true}, {Workers: 4, LaneOnly: true}} {
		for _, kind := range []string{"copy", "launch", "list"} {
			t.Run(fmt.Sprintf("%s, workers=%d, lanes=%v", kind, o.Workers, o.LaneOnly), func(t *testing.T) {
				d, s := started(t, o)
				p, err := d.Builtin("vecadd_f32")
				if o.LaneOnly { // there it has loops, and goes in no burst
					module, _ := os.ReadFile("testdata/steady.spv")
					p, err = d.Load(t.Context(), module)
				}
				require.NoError(t, err)
				id, iova := backend.JobID(0), uint64(1<<20)
				// made is a launch over so many bytes, and the memory of its result.
				made := func(n int) (*backend.Job, []byte) {
					var spans []backend.Span
					for range p.Info().Bindings {
						spans = append(spans, backend.Span{Host: make([]byte, n), IOVA: iova})
						iova += uint64(n)
					}
					for i := range n / 4 {
						binary.LittleEndian.PutUint32(spans[0].Host[4*i:], math.Float32bits(float32(i)))
					}
					id++
					job := &backend.Job{ID: id, Op: backend.OpLaunch, Program: p, Block: p.Info().Block, Spans: spans, Inline: make([]byte, p.Info().InlineBytes)}
					job.Grid = backend.Dim3{X: (uint32(n/4) + job.Block.X - 1) / job.Block.X, Y: 1, Z: 1}
					return job, spans[len(spans)-1].Host
				}
				run := func(job *backend.Job) {
					require.NoError(t, d.Submit(job))
					<-s.done
					require.Equal(t, outcome.Success, s.last.Outcome)
				}
				job, dst := made(large)
				if kind == "copy" {
					job.Op, job.Program, job.Spans = backend.OpCopy, nil, []backend.Span{job.Spans[len(job.Spans)-1], job.Spans[0]}
				}
				beside, to := made(small)
				run(job)
				run(beside)
				want, wantBeside := bytes.Clone(dst), bytes.Clone(to)
				require.False(t, bytes.Equal(want, make([]byte, large)))
				clear(dst)
				if kind == "list" {
					all := *job
					job = &backend.Job{Op: backend.OpList}
					for range 8 {
						job.List = append(job.List, all)
					}
				}
				r, _, ok := d.Prepare(beside, nil)
				require.True(t, ok)
				job.ID = 100
				require.NoError(t, d.Submit(job))
				seed := maphash.MakeSeed()
				within, bursts, ended := 0, 0, false
				for n := backend.JobID(1); !ended && n < 200; n++ {
					still := make(chan struct{})
					d.Pause(func() { close(still) })
					<-still
					before := maphash.Bytes(seed, dst)
					clear(to)
					var ends [1]backend.End
					if d.Burst(1000+n, []backend.Ready{r}, ends[:]) == 1 { // else it was slow, and rests
						bursts++
						require.Equal(t, outcome.Success, ends[0].Outcome)
						require.True(t, bytes.Equal(wantBeside, to))
					}
					require.Equal(t, before, maphash.Bytes(seed, dst), "nothing goes on")
					select {
					case <-s.done:
						ended = true
					default:
						within++
					}
					d.Resume()
				}
				if !ended {
					<-s.done
				}
				require.Equal(t, outcome.Success, s.last.Outcome)
				require.True(t, bytes.Equal(want, dst))
				require.Positive(t, bursts)
				t.Logf("%d pauses within, %d bursts", within, bursts)
			})
		}
	}
}

// A job that is stopped in a pause leaves, whatever it is in, and the next pause finds all of
// it gone.
func TestStopInAPause(t *testing.T) {
	for _, o := range []mock.Options{{Workers: 1}, {Workers: 4, LaneOnly: true}} {
		d, s := started(t, o)
		src, dst := backend.Span{Host: make([]byte, 16<<20)}, backend.Span{Host: make([]byte, 16<<20), IOVA: 1 << 30}
		for id := backend.JobID(1); id < 30; id++ {
			job := launch(t, d, "copy", nil, src, dst)
			job.ID = id
			require.NoError(t, d.Submit(job))
			still := make(chan struct{})
			d.Pause(func() { close(still) })
			<-still
			d.Cancel(id)
			<-s.done
			require.Contains(t, []outcome.Kind{outcome.OK, outcome.Cancelled}, s.last.Outcome.Kind)
			d.Resume()
		}
	}
}
