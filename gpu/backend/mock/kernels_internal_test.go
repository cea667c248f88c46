package mock

import (
	"context"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/program"
	"capgpu/program/lane"
	"capgpu/program/library"
	"capgpu/program/native"
	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
	"capgpu/program/verify"
)

func TestStoppedTaskIsNotSuccess(t *testing.T) {
	d, _ := liveDevice(t, Options{})
	work := &task{dev: d, slot: &slot{}, kernel: fillBlock, items: 10, block: 5, move: move{words: make([]uint32, 10)}}
	work.slot.stop.Store(stopCancel)
	work.run(0)
	require.Equal(t, "cancelled", work.outcome().String())
	work.slot.stop.Store(stopNone)
	work.run(0)
	work.slot.stop.Store(stopCancel)
	require.Equal(t, "ok", work.outcome().String(), "a cancel after the last block came too late")
}

// sinkOf tells completions and the end of the device.
type sinkOf chan string

func (s sinkOf) Complete(c backend.Completion) { s <- c.Outcome.String() }
func (s sinkOf) DeviceGone(string)             { s <- "gone" }

// liveDevice is a started device and what its sink is told.
func liveDevice(t *testing.T, o Options) (*Device, sinkOf) {
	t.Helper()
	d, err := New(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	told := make(sinkOf, 64)
	require.NoError(t, d.Start(told))
	return d, told
}

func one() backend.Dim3 { return backend.Dim3{X: 1, Y: 1, Z: 1} }

func bug() bool {
	var none []int
	return none[len(none)] == 0
}

// copyWith is the library's copy with another body.
func copyWith(t *testing.T, d *Device, b native.Body) *code {
	t.Helper()
	p, err := d.Builtin("copy")
	require.NoError(t, err)
	return &code{program: p.(*code).program, body: &b}
}

// A bug in what runs a program is no trap and no end of the process: it costs the
// job. One in the device itself is the end of that.
func TestBugs(t *testing.T) {
	fine := func(*native.Call) (uint64, bool) { return 1 << 20, true }
	grain := func(*native.Call) uint64 { return 1 }
	for name, c := range map[string]struct {
		body native.Body
		want string
	}{
		"run":   {native.Body{Items: fine, Grain: grain, Run: func(*native.Call, uint64, uint64) bool { return bug() }}, "failed: deviceError"},
		"items": {native.Body{Items: func(*native.Call) (uint64, bool) { return 0, bug() }}, "gone"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := New(Options{Workers: 4})
			require.NoError(t, err)
			defer d.Close()
			told := make(sinkOf, 1)
			require.NoError(t, d.Start(told))
			one := backend.Dim3{X: 1, Y: 1, Z: 1}
			span := backend.Span{Host: make([]byte, 64)}
			job := &backend.Job{ID: 1, Op: backend.OpLaunch, Program: copyWith(t, d, c.body), Grid: one, Block: one, Spans: []backend.Span{span, span}}
			require.NoError(t, d.Submit(job))
			require.Equal(t, c.want, <-told)
			fill := &backend.Job{ID: 2, Op: backend.OpFill, Spans: []backend.Span{span}}
			if c.want == "gone" {
				require.ErrorIs(t, d.Submit(fill), gpuerr.DeviceLost)
				return
			}
			require.NoError(t, d.Submit(fill))
			require.Equal(t, "ok", <-told)
		})
	}
}

// The lane engine does what a fast body cannot do after all, from the start.
func TestDeclinedBody(t *testing.T) {
	d, err := New(Options{Workers: 4})
	require.NoError(t, err)
	defer d.Close()
	told := make(sinkOf, 1)
	require.NoError(t, d.Start(told))
	src, dst := backend.Span{Host: []byte("abcdefghijklmnop")}, backend.Span{Host: make([]byte, 16)}
	c := copyWith(t, d, native.Body{
		Items: func(*native.Call) (uint64, bool) { return 16, true },
		Grain: func(*native.Call) uint64 { return 1 },
		Run: func(c *native.Call, lo, _ uint64) bool {
			c.Bindings[1][lo%16] = 'x'
			return lo < 8
		},
	})
	one := backend.Dim3{X: 1, Y: 1, Z: 1}
	require.NoError(t, d.Submit(&backend.Job{ID: 1, Op: backend.OpLaunch, Program: c, Grid: one, Block: one, Spans: []backend.Span{src, dst}}))
	require.Equal(t, "ok", <-told)
	require.Equal(t, src.Host, dst.Host)
}

// A fast body that takes as long as its data say sees that it is to stop; it does not
// then become the lane engine's.
func TestLongBodyStops(t *testing.T) {
	d, told := liveDevice(t, Options{Workers: 2})
	begun := make(chan struct{})
	c := copyWith(t, d, native.Body{
		Items: func(*native.Call) (uint64, bool) { return 1, true },
		Grain: func(*native.Call) uint64 { return 1 },
		Run: func(c *native.Call, _, _ uint64) bool {
			close(begun)
			for c.Stop.Load() == 0 {
				runtime.Gosched()
			}
			return false
		},
	})
	src, dst := backend.Span{Host: []byte("abcdefghijklmnop")}, backend.Span{Host: make([]byte, 16)}
	require.NoError(t, d.Submit(&backend.Job{ID: 1, Op: backend.OpLaunch, Program: c, Grid: one(), Block: one(), Spans: []backend.Span{src, dst}}))
	<-begun
	d.Cancel(1)
	require.Equal(t, "cancelled", <-told)
	require.Equal(t, make([]byte, 16), dst.Host)
}

func TestLowestFaultStays(t *testing.T) {
	// Two pages that cannot be read, met in the order high, low, high.
	host, err := unix.Mmap(-1, 0, 8192, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(host)) })
	job := &backend.Job{Spans: []backend.Span{{Host: host}}}
	d, _ := liveDevice(t, Options{})
	work := &task{dev: d, slot: &slot{job: job}, job: job, items: 2048, block: 1024, kernel: fillBlock, move: move{words: wordsOf(host)}}
	for _, block := range []uint64{1, 0, 1} {
		work.next.Store(block)
		work.run(0)
	}
	require.Equal(t, outcome.Trap{Kind: outcome.MemoryGone}, work.outcome().Trap)
}

// However many forms of programs are launched, what is kept of them is bounded,
// and what was used last stays.
func TestKeptKernelsAreBounded(t *testing.T) {
	d, err := New(Options{Workers: 2})
	require.NoError(t, err)
	defer d.Close()
	p, err := d.Builtin("copy")
	require.NoError(t, err)
	job := func(n uint32) *backend.Job {
		return &backend.Job{Program: p, Grid: backend.Dim3{X: 1, Y: 1, Z: 1}, Block: backend.Dim3{X: n, Y: 1, Z: 1}}
	}
	first, err := d.kernels.get(&slot{}, job(256), 2)
	require.NoError(t, err)
	for n := uint32(1); n <= 100; n++ {
		_, err := d.kernels.get(&slot{}, job(n), 2)
		require.NoError(t, err)
		again, err := d.kernels.get(&slot{}, job(256), 1)
		require.NoError(t, err)
		require.Same(t, first, again)
		require.LessOrEqual(t, len(p.(*code).variants), maxVariants)
	}
	require.Equal(t, maxVariants, d.kernels.recent.Len())
	require.Len(t, first.workers, 2)
	// Others' kernels go when together they take too much.
	d.kernels.bytes += maxKernelBytes
	_, err = d.kernels.get(&slot{}, job(7), 2)
	require.NoError(t, err)
	require.Equal(t, 1, d.kernels.recent.Len())
	require.Len(t, p.(*code).variants, 1)
	_, err = d.kernels.get(&slot{}, job(2000), 2)
	require.Error(t, err)
	require.NotErrorIs(t, err, errStopped)
}

// A job that is stopped does not wait for its program to be compiled, and what it
// has left is told to stop, so that the next one waits for that no longer than it
// takes.
func TestCompilingEndsWithItsJob(t *testing.T) {
	d, err := New(Options{})
	require.NoError(t, err)
	defer d.Close()
	p, err := d.Builtin("matmul_tiled_f32")
	require.NoError(t, err)
	k := &d.kernels
	job := &backend.Job{Program: p, Block: p.Info().Block, Check: true}
	stopped := &slot{stopped: make(chan struct{}, 1)}
	stopped.askToStop(stopCancel)
	_, err = k.get(stopped, job, 1)
	require.ErrorIs(t, err, errStopped)
	require.NotNil(t, k.left)
	require.Empty(t, p.(*code).variants)

	never := make(chan struct{})
	k.left = never
	_, err = k.get(stopped, job, 1)
	require.ErrorIs(t, err, errStopped)
	require.Equal(t, (<-chan struct{})(never), k.left, "one at a time")
	close(never)
	v, err := k.get(&slot{}, job, 1)
	require.NoError(t, err)
	require.True(t, v.form.check)
	require.Nil(t, k.left)
}

// bundleOf is a program of so many constants, which nothing uses, and 64 lanes.
func bundleOf(constants int) []byte {
	b := spirvtest.New()
	u := b.Uint(32)
	for i := range constants {
		b.Declare(spirv.OpConstant, u, b.ID(), i)
	}
	main := b.Func(b.Void())
	b.Return()
	b.End()
	b.Compute(main, "main", 64, 1, 1)
	return b.Bytes()
}

// The compiled form that is kept of a program is counted with its module, and goes with the
// program:
// while the device has nothing to do, and when it is busy, before its next job.
func TestReleasedProgramsAreForgotten(t *testing.T) {
	d, err := New(Options{Workers: 1})
	require.NoError(t, err)
	defer d.Close()
	told := make(sinkOf, 1)
	require.NoError(t, d.Start(told))
	one := backend.Dim3{X: 1, Y: 1, Z: 1}
	run := func(p backend.Program) {
		require.NoError(t, d.Submit(&backend.Job{ID: 1, Op: backend.OpLaunch, Program: p, Grid: one, Block: p.Info().Block}))
		require.Equal(t, "ok", <-told)
	}
	loaded := func(constants int) *code {
		p, err := d.Load(context.Background(), bundleOf(constants))
		require.NoError(t, err)
		return p.(*code)
	}
	small, large := loaded(10), loaded(5000)
	idle := loaded(10)
	idle.Release() // never run: there is nothing to do
	run(small)
	run(large)
	require.True(t, small.kept.Load())
	large.Release()
	require.Eventually(t, func() bool { return !large.kept.Load() }, 10*time.Second, time.Millisecond)
	run(loaded(20))
	spin, err := d.Builtin("spin")
	require.NoError(t, err)
	require.NoError(t, d.Submit(&backend.Job{ID: 2, Op: backend.OpLaunch, Program: spin, Grid: one, Block: spin.Info().Block}))
	small.Release()
	d.Cancel(2)
	require.Equal(t, "cancelled", <-told)
	copies, err := d.Builtin("copy")
	require.NoError(t, err)
	copies.(backend.Releaser).Release() // the library stays
	require.NoError(t, d.Close())

	require.Empty(t, small.variants)
	require.Empty(t, large.variants)
	require.Equal(t, 1, d.kernels.recent.Len())
	left := d.kernels.recent.Front().Value.(*variant)
	require.Equal(t, left.bytes+left.code.moduleBytes(), d.kernels.bytes)
	require.GreaterOrEqual(t, large.moduleBytes(), uint64(5000*4*4*moduleFactor), "a module counts with what it is parsed to")
}

// The caller that loads a program may give it up, also while it is compiled.
func TestLoadEndsWithItsContext(t *testing.T) {
	d, err := New(Options{})
	require.NoError(t, err)
	defer d.Close()
	b := spirvtest.New()
	u := b.Uint(32)
	main := b.Func(b.Void())
	x := b.Op(spirv.OpIAdd, u, b.U32(1), b.U32(2))
	for range 30_000 {
		x = b.Op(spirv.OpIAdd, u, x, x)
	}
	b.Return()
	b.End()
	b.Compute(main, "main", 1, 1, 1)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = d.Load(ctx, b.Bytes())
	require.ErrorIs(t, err, gpuerr.Busy)
	p, err := verify.Admit(b.Bytes(), verify.DefaultLimits())
	require.NoError(t, err)
	var stop atomic.Uint32
	stop.Store(1)
	_, err = d.compile(p, &stop)
	require.ErrorIs(t, err, lane.ErrStopped)
	_, err = d.Load(context.Background(), b.Bytes())
	require.NoError(t, err)
}

// A span that is bound twice and written makes the order of workgroups count.
func TestSharedSpansRunInOrder(t *testing.T) {
	d, err := New(Options{})
	require.NoError(t, err)
	defer d.Close()
	p, err := d.Builtin("copy")
	require.NoError(t, err)
	memory := make([]byte, 64)
	for name, c := range map[string]struct {
		a, b []byte
		want bool
	}{
		"apart":   {memory[:32], memory[32:], false},
		"same":    {memory, memory, true},
		"overlap": {memory[:48], memory[16:], true},
	} {
		require.Equal(t, c.want, shares(&backend.Job{Op: backend.OpLaunch, Program: p, Spans: []backend.Span{{Host: c.a}, {Host: c.b}}}), name)
	}
}

// A loaded program is the library's when its bytes are.
func TestLoadFindsTheFastBody(t *testing.T) {
	d, err := New(Options{})
	require.NoError(t, err)
	defer d.Close()
	bundle, _ := library.Bundle("vecadd_f32")
	p, err := d.Load(context.Background(), bundle)
	require.NoError(t, err)
	require.NotNil(t, p.(*code).body)
	parsed, err := program.Parse(bundle)
	require.NoError(t, err)
	bare, err := d.Load(context.Background(), parsed.SPIRV)
	require.NoError(t, err)
	require.Nil(t, bare.(*code).body, "another bundle")
	slow, err := New(Options{LaneOnly: true})
	require.NoError(t, err)
	defer slow.Close()
	p, err = slow.Load(context.Background(), bundle)
	require.NoError(t, err)
	require.Nil(t, p.(*code).body)
}

// A workgroup of the lane engine that meets memory that has gone is named, and its worker
// may be used again.
func TestMemoryGoneUnderLanes(t *testing.T) {
	d, told := liveDevice(t, Options{})
	host, err := unix.Mmap(-1, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(host)) })
	module, err := os.ReadFile("testdata/steady.spv")
	require.NoError(t, err)
	p, err := d.Load(context.Background(), module)
	require.NoError(t, err)
	var guilty backend.Context
	job := &backend.Job{
		ID: 1, Op: backend.OpLaunch, Program: p, Grid: backend.Dim3{X: 5, Y: 1, Z: 1}, Block: p.Info().Block, Context: &guilty,
		Inline: make([]byte, 4), Spans: []backend.Span{{Host: host[4096-3*256 : 4096+2*256]}, {Host: make([]byte, 5*256)}},
	}
	run := func() string {
		job.ID++
		require.NoError(t, d.Submit(job))
		return <-told
	}
	require.Equal(t, "ok", run())
	require.NoError(t, unix.Mprotect(host[4096:], unix.PROT_NONE))
	require.Equal(t, trapped(outcome.Trap{Kind: outcome.MemoryGone, Workgroup: 3, Offset: 3 * 256}).String(), run())
	require.True(t, guilty.Trapped())
	require.NoError(t, unix.Mprotect(host[4096:], unix.PROT_READ))
	job.Context = nil
	require.Equal(t, "ok", run())
}
