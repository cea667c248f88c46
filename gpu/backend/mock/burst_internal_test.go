package mock

import (
	"bytes"
	"context"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpu/gputest/backendtest"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/program/native"
)

// live is a started device and what its sink is told.
func liveDevice(t *testing.T, o Options) (*Device, sinkOf) {
	t.Helper()
	d, err := New(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	told := make(sinkOf, 64)
	require.NoError(t, d.Start(told))
	return d, told
}

// patient has bursts take as long as they like.
func (d *Device) patient() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.burst.most = time.Minute
}

func one() backend.Dim3 { return backend.Dim3{X: 1, Y: 1, Z: 1} }

func fillJob(host []byte, pattern uint32) *backend.Job {
	return &backend.Job{ID: 1, Op: backend.OpFill, Spans: []backend.Span{{Host: host}}, Pattern: pattern}
}

func prepared(t *testing.T, d *Device, job *backend.Job) backend.Ready {
	t.Helper()
	r, _, ok := d.Prepare(job, nil)
	require.True(t, ok)
	return r
}

// burstOf is Burst, or, if its name says that, of who holds the device.
func (d *Device) burstOf(name string) func(backend.JobID, []backend.Ready, []backend.End) int {
	if strings.HasPrefix(name, "held") {
		return (&backendtest.Held{Holder: d}).Burst
	}
	return d.Burst
}

// A bug costs as much as on the engine.
func TestBugsInBursts(t *testing.T) {
	fine := func(*native.Call) (uint64, bool) { return 1, true }
	nanos := func(*native.Call) (uint64, bool) { return 1, true }
	run := native.Body{Items: fine, Nanos: nanos, Run: func(*native.Call, uint64, uint64) bool { return bug() }}
	for name, o := range map[string]Options{"quiet": {}, "log": {LogEntries: 16}, "held": {}} {
		t.Run(name, func(t *testing.T) {
			d, told := liveDevice(t, o)
			burst := d.burstOf(name)
			d.patient() // telling of a bug takes long
			mem := make([]byte, 64)
			span := backend.Span{Host: mem}
			launch := &backend.Job{Op: backend.OpLaunch, Program: copyWith(t, d, run), Grid: one(), Block: one(), Spans: []backend.Span{span, span}}
			jobs := []backend.Ready{prepared(t, d, fillJob(mem, 1)), prepared(t, d, launch), prepared(t, d, fillJob(mem, 2))}
			ends := make([]backend.End, 4)
			require.Equal(t, 2, burst(1, jobs, ends), "the core sees what may run after it")
			require.Equal(t, outcome.Success, ends[0].Outcome)
			require.Equal(t, deviceError, ends[1].Outcome)
			require.Equal(t, 1, burst(3, jobs[2:], ends[2:]))
			require.Equal(t, outcome.Success, ends[2].Outcome)
			require.EqualValues(t, 2, mem[0])

			launch.Program = copyWith(t, d, native.Body{Items: func(*native.Call) (uint64, bool) { return 0, bug() }})
			_, _, ok := d.Prepare(launch, jobs[1])
			require.False(t, ok, "what it costs is the engine's to say")

			// A copy that is none: the device itself is broken.
			broken := &ready{dev: d, job: fillJob(mem, 3), how: readyCopy}
			jobs = []backend.Ready{jobs[0], broken, jobs[2]}
			require.Equal(t, 1, burst(4, jobs, ends))
			require.Equal(t, outcome.Success, ends[0].Outcome)
			require.Equal(t, "gone", <-told)
			require.EqualValues(t, 1, mem[0])
			require.Zero(t, burst(6, jobs[:1], ends))
			require.ErrorIs(t, d.Submit(fillJob(mem, 1)), gpuerr.DeviceLost)
		})
	}
}

// What a fast body does not do after all is left to Submit, and has happened once.
func TestDeclinedInBurst(t *testing.T) {
	d, told := liveDevice(t, Options{LogEntries: 16})
	src, dst := backend.Span{Host: []byte("abcdefghijklmnop")}, backend.Span{Host: make([]byte, 16)}
	c := copyWith(t, d, native.Body{
		Items: func(*native.Call) (uint64, bool) { return 16, true },
		Grain: func(*native.Call) uint64 { return 16 },
		Nanos: func(*native.Call) (uint64, bool) { return 1, true },
		Run: func(c *native.Call, lo, _ uint64) bool {
			c.Bindings[1][lo%16] = 'x'
			return false
		},
	})
	job := &backend.Job{ID: 2, Op: backend.OpLaunch, Program: c, Grid: one(), Block: one(), Spans: []backend.Span{src, dst}}
	other := make([]byte, 4)
	jobs := []backend.Ready{prepared(t, d, fillJob(other, 1)), prepared(t, d, job)}
	ends := make([]backend.End, 2)
	require.Equal(t, 1, d.Burst(1, jobs, ends))
	require.Zero(t, d.Burst(2, jobs[1:], ends))
	require.NoError(t, d.Submit(job))
	require.Equal(t, "ok", <-told)
	require.Equal(t, src.Host, dst.Host)
	log, _ := d.Log()
	require.Len(t, log, 2)
	require.EqualValues(t, 2, log[1].Ordinal)
}

func steadyProgram(t *testing.T, d *Device) backend.Program { return loaded(t, d, "steady") }

func loaded(t *testing.T, d *Device, name string) backend.Program {
	t.Helper()
	module, err := os.ReadFile("testdata/" + name + ".spv")
	require.NoError(t, err)
	p, err := d.Load(context.Background(), module)
	require.NoError(t, err)
	return p
}

// A program on the lane engine is run by Submit until it is compiled, and again when
// what it was compiled to has been dropped.
func TestLanesInBursts(t *testing.T) {
	d, told := liveDevice(t, Options{Workers: 2})
	p := steadyProgram(t, d)
	c := p.(*code)
	src, dst := bytes.Repeat([]byte{1, 0, 0, 0}, 64), make([]byte, 256)
	job := &backend.Job{
		ID: 1, Op: backend.OpLaunch, Program: p, Grid: one(), Block: p.Info().Block,
		Inline: make([]byte, 4), Spans: []backend.Span{{Host: src}, {Host: dst}},
	}
	r, ends := prepared(t, d, job), make([]backend.End, 1)
	submit := func() {
		require.NoError(t, d.Submit(job))
		require.Equal(t, "ok", <-told)
		for d.busy() {
			runtime.Gosched()
		}
	}
	again := func() {
		clear(dst)
		require.Equal(t, 1, d.Burst(1, []backend.Ready{r}, ends))
		require.Equal(t, outcome.Success, ends[0].Outcome)
		require.Equal(t, bytes.Repeat([]byte{4, 0, 0, 0}, 64), dst)
	}
	require.Zero(t, d.Burst(1, []backend.Ready{r}, ends))
	submit()
	again()
	again()
	d.mu.Lock()
	d.kernels.forget(c)
	d.mu.Unlock()
	require.Nil(t, r.(*ready).variant.kernel, "it keeps nothing alive")
	require.Zero(t, d.Burst(1, []backend.Ready{r}, ends))
	submit()
	again()

	// A bug drops what nobody knows the state of.
	r.(*ready).variant.workers[0] = nil
	require.Equal(t, 1, d.Burst(1, []backend.Ready{r}, ends))
	require.Equal(t, deviceError, ends[0].Outcome)
	require.Empty(t, c.variants)
	submit()
	again()
	// The last used of all is the last to go.
	other := steadyProgram(t, d).(*code)
	job.Program = other
	submit()
	require.Same(t, other, d.kernels.recent.Front().Value.(*variant).code)
	again()
	require.Same(t, c, d.kernels.recent.Front().Value.(*variant).code)
}

// What is steady in the workgroup that a program was loaded with need not be in another.
func TestOtherFormsInBursts(t *testing.T) {
	d, told := liveDevice(t, Options{})
	p := loaded(t, d, "sized")
	mem := make([]byte, 4096)
	job := &backend.Job{ID: 1, Op: backend.OpLaunch, Program: p, Grid: one(), Block: one(), Spans: []backend.Span{{Host: mem}}}
	for x, want := range map[uint32]int{1: 1, 64: 0} {
		job.Block.X = x
		r, ends := prepared(t, d, job), make([]backend.End, 1)
		require.NoError(t, d.Submit(job))
		require.Equal(t, "ok", <-told)
		for d.busy() {
			runtime.Gosched()
		}
		require.Equal(t, want, d.Burst(1, []backend.Ready{r}, ends), x)
	}
}

func TestGroupsShareTheirTime(t *testing.T) {
	b := burst{jobs: make([]backend.Ready, 5), ends: make([]backend.End, 5), at: 3}
	now := b.clock.Read()
	b.began = now - int64(time.Hour)
	b.measure()
	var sum time.Duration
	for _, end := range b.ends[:3] {
		require.InDelta(t, time.Hour/3, end.DeviceTime, float64(time.Minute))
		sum += end.DeviceTime
	}
	require.GreaterOrEqual(t, sum, time.Hour)
	require.Zero(t, b.ends[3])
	require.Equal(t, 3, b.from)
	require.Equal(t, sum, time.Duration(b.began-now)+time.Hour, "nothing is left between groups")
	b.at, b.began = 5, b.began+int64(time.Hour) // a clock that went back
	b.measure()
	require.Zero(t, b.ends[3].DeviceTime)
}

// A burst that is kept much longer than its jobs said leaves the rest.
func TestBurstsAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		o    Options
		says uint64 // of the one that takes longer
		want int
	}{
		"quiet":       {Options{}, 1, backend.MaxBurstGroup},
		"quiet, long": {Options{}, groupNanos, 1},
		"held":        {Options{}, 1, backend.MaxBurstGroup},
		"held, long":  {Options{}, groupNanos, 1},
		"log":         {Options{LogEntries: 16}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			d, _ := liveDevice(t, c.o)
			span := backend.Span{Host: make([]byte, 64)}
			slow := &backend.Job{Op: backend.OpLaunch, Grid: one(), Block: one(), Spans: []backend.Span{span, span}, Program: copyWith(t, d, native.Body{
				Items: func(*native.Call) (uint64, bool) { return 1, true },
				Nanos: func(*native.Call) (uint64, bool) { return c.says, true },
				Run: func(*native.Call, uint64, uint64) bool {
					for began := time.Now(); time.Since(began) < mostBurst+mostBurst/8; {
					}
					return true
				},
			})}
			quick := prepared(t, d, fillJob(span.Host, 1))
			jobs := []backend.Ready{prepared(t, d, slow)}
			for len(jobs) < 30 {
				jobs = append(jobs, quick)
			}
			ends := make([]backend.End, len(jobs))
			if name == "quiet" || name == "quiet, long" || name == "log" {
				require.Equal(t, c.want, d.Burst(1, jobs, ends))
				d.patient()
				require.Equal(t, len(jobs)-1, d.Burst(1, jobs[1:], ends))
				return
			}
			nanos, last := make([]uint64, len(jobs)), outcome.Outcome{}
			require.True(t, d.Hold())
			defer d.Release()
			require.Equal(t, c.want, d.BurstHeld(1, jobs, nanos, &last))
			require.Equal(t, outcome.Success, last)
			require.Zero(t, nanos[c.want])
			require.Equal(t, 1, d.BurstHeld(1, jobs[:1], nanos, &last))
			require.Greater(t, nanos[0], uint64(mostBurst))
		})
	}
}

// A job that always takes far longer than expected goes by Submit, for a while.
func TestSlowJobsRest(t *testing.T) {
	for _, name := range []string{"quiet", "held"} {
		t.Run(name, testSlowJobsRest)
	}
}

func testSlowJobsRest(t *testing.T) {
	d, _ := liveDevice(t, Options{})
	span := backend.Span{Host: make([]byte, 64)}
	runs := 0
	slow := &backend.Job{Op: backend.OpLaunch, Grid: one(), Block: one(), Spans: []backend.Span{span, span}, Program: copyWith(t, d, native.Body{
		Items: func(*native.Call) (uint64, bool) { return 1, true },
		Nanos: func(*native.Call) (uint64, bool) { return 1, true },
		Run: func(*native.Call, uint64, uint64) bool {
			for began := time.Now(); time.Since(began) < 2*slowNanos; {
			}
			runs++
			return true
		},
	})}
	jobs, ends := []backend.Ready{prepared(t, d, slow)}, make([]backend.End, 2)
	run := d.Burst
	if strings.HasSuffix(t.Name(), "held") {
		run = func(first backend.JobID, jobs []backend.Ready, _ []backend.End) int {
			require.True(t, d.Hold())
			defer d.Release()
			return d.BurstHeld(first, jobs, make([]uint64, 2), new(outcome.Outcome))
		}
	}
	for range slowTimes {
		require.Equal(t, 1, run(1, jobs, ends))
	}
	for range slowRest {
		require.Zero(t, run(1, jobs, ends))
	}
	require.Equal(t, 1, run(1, jobs, ends), "once more")
	require.Zero(t, run(1, jobs, ends))
	require.Equal(t, slowTimes+1, runs)

	// What is slow now and then is not slow.
	r := jobs[0].(*ready)
	r.slow = slowTimes - 1
	b := burst{jobs: jobs, at: 1, nanos: 100}
	b.judge(slowFactor*100 + slowNanos)
	require.Zero(t, r.slow)
}

// Bursts, the engine's own work on the same caches, loads, releases, resets and
// looks at the log beside each other: for the race detector.
func TestBurstsBesideTheEngine(t *testing.T) {
	d, told := liveDevice(t, Options{Workers: 2, LogEntries: 8})
	p := steadyProgram(t, d)
	mem := make([]byte, 1024)
	job := &backend.Job{
		ID: 1, Op: backend.OpLaunch, Program: p, Grid: one(), Block: p.Info().Block,
		Inline: make([]byte, 4), Spans: []backend.Span{{Host: mem[:256]}, {Host: mem[256:]}},
	}
	require.NoError(t, d.Submit(job))
	require.Equal(t, "ok", <-told)
	done := make(chan struct{})
	var wg sync.WaitGroup
	var ran atomic.Int64
	wg.Go(func() {
		r := prepared(t, d, job)
		ends := make([]backend.End, 8)
		for {
			select {
			case <-done:
				return
			default:
				ran.Add(int64(d.Burst(100, []backend.Ready{r, r, r, r, r, r, r, r}, ends)))
				r, _, _ = d.Prepare(job, r)
			}
		}
	})
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				d.Log()
				d.Cancel(100)
			}
		}
	})
	own := make([]byte, 1024)
	for range 30 {
		loaded := steadyProgram(t, d)
		mine := *job
		mine.ID, mine.Program, mine.Spans = 2, loaded, []backend.Span{{Host: own[:256]}, {Host: own[256:]}}
		require.NoError(t, d.Submit(&mine))
		require.Equal(t, "ok", <-told)
		loaded.(backend.Releaser).Release()
		require.NoError(t, d.Reset(context.Background()))
	}
	for until := time.Now().Add(10 * time.Second); ran.Load() == 0 && time.Now().Before(until); {
		runtime.Gosched()
	}
	close(done)
	wg.Wait()
	require.NotZero(t, ran.Load())
}
