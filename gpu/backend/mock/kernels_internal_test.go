package mock

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/program"
	"capgpu/program/lane"
	"capgpu/program/library"
	"capgpu/program/native"
)

func TestStoppedTaskIsNotSuccess(t *testing.T) {
	work := &task{slot: &slot{}, kernel: fillBlock, items: 10, block: 5, words: make([]uint32, 10)}
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

func bug() bool {
	var none []int
	return none[len(none)] == 0
}

// copyWith is the library's copy with another body.
func copyWith(t *testing.T, d *Device, b native.Body) *code {
	t.Helper()
	p, err := d.Builtin("copy")
	require.NoError(t, err)
	c := *p.(*code)
	c.body = &b
	return &c
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

// What a fast body cannot do after all is done by the lane engine, from the start.
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

func TestLowestFaultStays(t *testing.T) {
	// Two pages that cannot be read, met in the order high, low, high.
	host, err := unix.Mmap(-1, 0, 8192, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(host)) })
	job := &backend.Job{Spans: []backend.Span{{Host: host}}}
	work := &task{slot: &slot{job: job}, items: 2048, block: 1024, kernel: fillBlock, words: wordsOf(host)}
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

// A job that is stopped does not wait for its program to be compiled; the next one
// that needs that form finds it.
func TestCompilingEndsWithItsJob(t *testing.T) {
	d, err := New(Options{})
	require.NoError(t, err)
	defer d.Close()
	p, err := d.Builtin("copy")
	require.NoError(t, err)
	k, f := &d.kernels, form{block: program.Dim3{X: 7, Y: 1, Z: 1}}
	slow := &compilation{code: p.(*code), form: f, done: make(chan struct{})}
	k.compiling = slow
	job := &backend.Job{Program: p, Block: backend.Dim3{X: 7, Y: 1, Z: 1}}
	stopped := &slot{stopped: make(chan struct{}, 1)}
	stopped.askToStop(stopCancel)
	_, err = k.get(stopped, job, 1)
	require.ErrorIs(t, err, errStopped)
	require.Same(t, slow, k.compiling)
	other := *job
	other.Block.X = 8
	_, err = k.get(stopped, &other, 1)
	require.ErrorIs(t, err, errStopped)
	slow.kernel, err = lane.Compile(p.(*code).program, lane.Options{Block: f.block})
	require.NoError(t, err)
	close(slow.done)
	v, err := k.get(&slot{}, job, 1)
	require.NoError(t, err)
	require.Same(t, slow.kernel, v.kernel)
	require.Nil(t, k.compiling)
	_, err = k.get(&slot{}, &other, 1)
	require.NoError(t, err)
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
