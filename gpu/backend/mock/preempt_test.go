package mock_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/outcome"
)

// preemptRig is a device with two contexts.
type preemptRig struct {
	*listRig
	long, short backend.Context
}

func newPreemptRig(t *testing.T, o mock.Options) *preemptRig {
	return &preemptRig{listRig: newListRig(t, o)}
}

// submit sends a job of a context.
func (r *preemptRig) submit(c *backend.Context, job backend.Job) backend.JobID {
	r.t.Helper()
	r.id++
	job.ID, job.Context, job.Round = r.id, c, 1
	require.NoError(r.t, r.dev.Submit(&job))
	return r.id
}

// await waits for the next completion, which is of this job.
func (r *preemptRig) await(id backend.JobID) backend.Completion {
	r.t.Helper()
	select {
	case c := <-r.told:
		require.Equal(r.t, id, c.ID, "in this order")
		return c
	case <-time.After(20 * time.Second):
		require.FailNow(r.t, "no completion", "job %d", id)
	}
	panic("not reached")
}

// none requires that nothing ends for a while.
func (r *preemptRig) none() {
	r.t.Helper()
	select {
	case c := <-r.told:
		require.FailNow(r.t, "a completion", "job %d: %v", c.ID, c.Outcome)
	case <-time.After(5 * time.Millisecond):
	}
}

// spin submits a job that never ends by itself.
func (r *preemptRig) spin() backend.JobID {
	r.t.Helper()
	return r.submit(&r.long, r.launch("spin"))
}

// memory is a span of zeros.
func (r *preemptRig) memory(n int) backend.Span { return r.span(make([]byte, n)) }

// end cancels a job and returns its completion.
func (r *preemptRig) end(id backend.JobID) backend.Completion {
	r.t.Helper()
	r.dev.Cancel(id)
	c := r.await(id)
	require.Equal(r.t, outcome.Cancelled, c.Outcome.Kind)
	return c
}

// hookSink has a function see each completion first.
type hookSink struct {
	listSink
	hook func(backend.Completion)
}

func (s *hookSink) Complete(c backend.Completion) {
	s.hook(c)
	s.listSink.Complete(c)
}

// A job that computes is preempted in its midst by a short one: nothing of it is written
// meanwhile, the same program runs beside it, and its result is as without.
func TestPreemptInTheMidst(t *testing.T) {
	const large, small = 8 << 20, 256
	for _, o := range []mock.Options{{Workers: 1}, {Workers: 4}, {Workers: 1, LaneOnly: true}, {Workers: 4, LaneOnly: true}} {
		for _, kind := range []string{"copy", "launch", "list"} {
			t.Run(fmt.Sprintf("%s, workers=%d, lanes=%v", kind, o.Workers, o.LaneOnly), func(t *testing.T) {
				o.LogEntries = 1 << 16
				d, err := mock.New(o)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, d.Close()) })
				p, err := d.Builtin("vecadd_f32")
				if o.LaneOnly { // there it has loops, and is not short
					module, _ := os.ReadFile("testdata/steady.spv")
					p, err = d.Load(t.Context(), module)
				}
				require.NoError(t, err)
				s := &hookSink{listSink: make(listSink, 16), hook: func(backend.Completion) {}}
				require.NoError(t, d.Start(s))
				r := &preemptRig{listRig: &listRig{t: t, dev: d, told: s.listSink, iova: 1 << 20}}

				// made is a launch over so many bytes, and the memory of its result.
				made := func(n int) (backend.Job, []byte) {
					var spans []backend.Span
					for range p.Info().Bindings {
						spans = append(spans, backend.Span{Host: make([]byte, n), IOVA: r.iova})
						r.iova += uint64(n)
					}
					for i := range n / 4 {
						binary.LittleEndian.PutUint32(spans[0].Host[4*i:], math.Float32bits(float32(i)))
					}
					job := backend.Job{Op: backend.OpLaunch, Program: p, Block: p.Info().Block, Spans: spans, Inline: make([]byte, p.Info().InlineBytes)}
					job.Grid = backend.Dim3{X: (uint32(n/4) + job.Block.X - 1) / job.Block.X, Y: 1, Z: 1}
					return job, spans[len(spans)-1].Host
				}
				job, dst := made(large)
				if kind == "copy" {
					job.Op, job.Program, job.Spans = backend.OpCopy, nil, []backend.Span{job.Spans[len(job.Spans)-1], job.Spans[0]}
				}
				beside, to := made(small)
				for _, first := range []backend.Job{job, beside} { // this is also for its compilation
					require.Equal(t, outcome.Success, r.await(r.submit(&r.long, first)).Outcome)
				}
				want, wantBeside := bytes.Clone(dst), bytes.Clone(to)
				require.NotEqual(t, make([]byte, small), wantBeside)
				if kind == "list" {
					all := job
					job = backend.Job{Op: backend.OpList}
					for range 8 {
						job.List = append(job.List, all)
					}
				}

				seed, within, ended := maphash.MakeSeed(), 0, false
				var id backend.JobID
				s.hook = func(c backend.Completion) {
					if c.ID == id || ended {
						ended = true
						return
					}
					before := maphash.Bytes(seed, dst)
					require.Equal(t, before, maphash.Bytes(seed, dst), "nothing goes on")
					within++
				}
				for round := 0; round < 50 && within == 0; round++ {
					clear(dst)
					ended, id = false, r.id+1
					preempted := d.Preempted()
					began := time.Now()
					require.Equal(t, id, r.submit(&r.long, job))
					for told := 0; told < 2; {
						if !raceEnabled {
							clear(to)
						}
						last := r.submit(&r.short, beside)
						for told = 0; ; {
							c := <-r.told
							require.Equal(t, outcome.Success, c.Outcome)
							if c.ID == id {
								told = 1
								require.LessOrEqual(t, c.DeviceTime+d.Preempted()-preempted, time.Since(began))
							}
							if c.ID == last {
								break
							}
						}
						require.Equal(t, wantBeside, to)
						told *= 2
					}
					require.True(t, bytes.Equal(want, dst))
				}
				require.Positive(t, within, "short jobs that ended before the long one")
				log, _ := d.Log()
				for _, e := range log {
					require.True(t, e.Started)
					require.Equal(t, mock.Finished, e.End)
					require.LessOrEqual(t, e.StartedAt, e.EndedAt)
				}
			})
		}
	}
}

// Within a context the order stays, and what is not short, or has a fault, waits.
func TestPreemptOrder(t *testing.T) {
	r := newPreemptRig(t, mock.Options{LogEntries: 64, LogDigests: true,
		Script: mock.Script{Faults: []mock.Fault{{Kind: mock.FaultErrorCompletion, Op: "copy"}}}})
	s, large := r.memory(64), r.memory(1<<20)
	short := fillJob(s, 1)
	spin := r.spin()
	own := r.submit(&r.long, short)
	none := r.submit(nil, short)
	r.none()

	first := r.submit(&r.short, short)
	c := r.await(first)
	require.Equal(t, outcome.Success, c.Outcome)
	second := r.submit(&r.short, fillJob(large, 2))
	third := r.submit(&r.short, short)
	var others [3]backend.Context
	faulty := r.submit(&others[0], backend.Job{Op: backend.OpCopy, Spans: []backend.Span{s, s}})
	checked := r.launch("copy", s, s)
	checked.Check = true
	watched := r.submit(&others[1], checked)
	r.none()

	// A job that waits behind one that is cancelled may be short.
	blocker := r.submit(&others[2], fillJob(large, 3))
	free := r.submit(&others[2], short)
	r.none()
	r.dev.Cancel(blocker)
	require.ElementsMatch(t, []backend.JobID{blocker, free}, []backend.JobID{(<-r.told).ID, (<-r.told).ID})

	require.Equal(t, outcome.Cancelled, r.end(spin).Outcome.Kind)
	var told []backend.JobID
	for range 6 {
		c := <-r.told
		switch c.ID {
		case own: // its round is over, which the attendant says
			require.Equal(t, outcome.Outcome{Kind: outcome.Cancelled}, c.Outcome)
			continue
		case faulty:
			require.Equal(t, outcome.DeviceError, c.Outcome.Cause)
		default:
			require.Equal(t, outcome.Success, c.Outcome)
		}
		told = append(told, c.ID)
	}
	require.Equal(t, []backend.JobID{none, second, third, faulty, watched}, told)
	log, _ := r.dev.Log()
	require.EqualValues(t, 4, log[first-1].Ordinal)
	require.Equal(t, mock.Finished, log[first-1].End)
	require.EqualValues(t, 64, log[first-1].Bytes)
	require.NotZero(t, log[first-1].Digest)
	require.Less(t, log[first-1].EndedAt, log[spin-1].EndedAt)
}

// Lists of short entries preempt, others wait.
func TestListsPreempt(t *testing.T) {
	r := newPreemptRig(t, mock.Options{LogEntries: 64})
	s, wide := r.memory(64), r.memory(64<<10)
	list := func(n int, s backend.Span) backend.Job {
		job := backend.Job{Op: backend.OpList}
		for i := range n {
			job.List = append(job.List, fillJob(s, uint32(i)))
		}
		for i := range job.List {
			ready, _, ok := r.dev.Prepare(&job.List[i], nil)
			require.True(t, ok)
			job.List[i].Ready = ready
		}
		return job
	}
	spin := r.spin()
	c := r.await(r.submit(&r.short, list(5, s)))
	require.Equal(t, outcome.Success, c.Outcome)
	require.EqualValues(t, 5, c.Begun)
	require.EqualValues(t, 4, s.Host[0])
	rest := list(5, s)
	rest.From = 3
	require.EqualValues(t, 2, r.await(r.submit(&r.short, rest)).Begun)

	long := r.submit(&r.short, list(100, wide)) // each is expected to take 4 µs
	half := list(2, s)
	half.List[1].Ready = nil
	var other backend.Context
	odd := r.submit(&other, half)
	r.none()
	r.end(spin)
	require.EqualValues(t, 100, r.await(long).Begun)
	require.EqualValues(t, 2, r.await(odd).Begun)
}

// A trap of a short job, and the end of its round, are of its context alone, and said at once.
func TestPreemptTraps(t *testing.T) {
	r := newPreemptRig(t, mock.Options{})
	gone, err := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(gone)) })
	s := r.memory(64)
	spin := r.spin()
	trap := r.submit(&r.short, fillJob(r.span(gone), 1))
	behind := r.submit(&r.short, fillJob(s, 1))
	require.Equal(t, outcome.MemoryGone, r.await(trap).Outcome.Trap.Kind)
	require.Equal(t, outcome.Outcome{Kind: outcome.Cancelled}, r.await(behind).Outcome)
	require.True(t, r.short.Trapped())
	require.False(t, r.long.Over(1))

	var other backend.Context
	other.Fail(1)
	require.Equal(t, outcome.Cancelled, r.await(r.submit(&other, fillJob(r.memory(1<<20), 1))).Outcome.Kind)
	r.id++
	later := fillJob(s, 7)
	later.ID, later.Context, later.Round = r.id, &other, 2
	require.NoError(t, r.dev.Submit(&later))
	require.Equal(t, outcome.Success, r.await(r.id).Outcome)
	require.EqualValues(t, 7, s.Host[0])
	require.EqualValues(t, 7, s.Host[60])
	r.end(spin)
}

// A job that others preempt without end has half of the device, and its time says so.
func TestPreemptedHasHalf(t *testing.T) {
	r := newPreemptRig(t, mock.Options{})
	s := r.memory(64 << 10)
	job, preempted := fillJob(s, 1), r.dev.Preempted()
	began := time.Now()
	spin := r.spin()
	sent, ended := 0, 0
	had, longest := time.Duration(0), time.Duration(0)
	for time.Since(began) < 100*time.Millisecond {
		for ; sent-ended < 15; sent++ {
			r.submit(&r.short, job)
		}
		c := <-r.told
		require.Equal(t, outcome.Success, c.Outcome)
		ended++
		had, longest = had+c.DeviceTime, max(longest, c.DeviceTime)
	}
	for ; ended < sent; ended++ {
		had += (<-r.told).DeviceTime
	}
	time.Sleep(20 * time.Millisecond) // for the last one
	c := r.end(spin)
	preempted = r.dev.Preempted() - preempted
	require.GreaterOrEqual(t, preempted, had)
	require.Positive(t, preempted)
	require.GreaterOrEqual(t, c.DeviceTime+longest, preempted) // it was told to stop before all was paid
	require.LessOrEqual(t, c.DeviceTime+preempted, time.Since(began))
}
