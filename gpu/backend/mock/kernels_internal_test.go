package mock

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

func TestMatvecStopsInsideARow(t *testing.T) {
	const cols = 4 * elementBlock
	work := &task{slot: &slot{}, cols: cols}
	work.floats = [3][]float32{make([]float32, cols), make([]float32, cols), make([]float32, 1)}
	work.floats[2][0] = 7
	work.slot.stop.Store(stopCancel)
	require.False(t, matvecBlock(work, 0, 1))
	require.Equal(t, float32(7), work.floats[2][0], "a row that was left is not stored")
	work.slot.stop.Store(stopNone)
	require.True(t, matvecBlock(work, 0, 1))
	require.Zero(t, work.floats[2][0])
}

func TestStoppedTaskIsNotSuccess(t *testing.T) {
	work := &task{slot: &slot{}, kernel: fillBlock, items: 10, block: 5, perItem: 4}
	work.words[0] = make([]uint32, 10)
	work.slot.stop.Store(stopCancel)
	work.work()
	require.Equal(t, "cancelled", work.outcome().String())
	work.slot.stop.Store(stopNone)
	work.work()
	work.slot.stop.Store(stopCancel)
	require.Equal(t, "ok", work.outcome().String(), "a cancel after the last block came too late")
}

// goneSink is told when the device is gone.
type goneSink chan string

func (goneSink) Complete(c backend.Completion) { panic("completed: " + c.Outcome.String()) }
func (g goneSink) DeviceGone(reason string)    { g <- reason }

// A bug is no trap of the job and no end of the process: the device is gone.
func TestBugsEndTheDevice(t *testing.T) {
	bug := func() bool {
		var none []int
		return none[len(none)] == 0
	}
	for name, prepare := range map[string]func(*task, *backend.Job) outcome.Trap{
		"kernel": func(t *task, _ *backend.Job) outcome.Trap {
			t.items, t.block, t.kernel = 1, 1, func(*task, uint64, uint64) bool { return bug() }
			return outcome.Trap{}
		},
		"worker": func(t *task, _ *backend.Job) outcome.Trap {
			t.items, t.block, t.total = 1<<20, 1, 1<<30
			t.kernel = func(*task, uint64, uint64) bool { return bug() }
			return outcome.Trap{}
		},
		"prepare": func(*task, *backend.Job) outcome.Trap { bug(); return outcome.Trap{} },
	} {
		t.Run(name, func(t *testing.T) {
			d, err := New(Options{Workers: 4})
			require.NoError(t, err)
			defer d.Close()
			gone := make(goneSink, 1)
			require.NoError(t, d.Start(gone))
			one := backend.Dim3{X: 1, Y: 1, Z: 1}
			job := &backend.Job{ID: 1, Op: backend.OpLaunch, Program: &builtin{prepare: prepare}, Grid: one, Block: one}
			require.NoError(t, d.Submit(job))
			require.NotEmpty(t, <-gone)
			job.ID = 2
			require.ErrorIs(t, d.Submit(job), gpuerr.DeviceLost)
		})
	}
}

func TestLowestFaultStays(t *testing.T) {
	// Two pages that cannot be read, met in the order high, low, high.
	host, err := unix.Mmap(-1, 0, 8192, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(host)) })
	job := &backend.Job{Spans: []backend.Span{{Host: host}}}
	work := &task{slot: &slot{job: job}, items: 2048, block: 1024, perItem: 4, kernel: fillBlock}
	work.words[0] = wordsOf(host)
	for _, block := range []uint64{1, 0, 1} {
		work.next.Store(block)
		work.work()
	}
	require.Equal(t, outcome.Trap{Kind: outcome.MemoryGone}, work.outcome().Trap)
}
