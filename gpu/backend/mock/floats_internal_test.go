package mock

import (
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpu/backend"
	"capgpu/outcome"
	"capgpu/program/native"
)

// keeps says whether the thread's arithmetic keeps subnormal numbers.
//
//go:noinline
func keeps(v float32) bool { return v*0.5 != 0 }

const subnormal = 1e-40

// A body that meets memory that has gone was amid assembly that flushes subnormal
// numbers: the thread keeps them again when the fault has been caught, whoever did.
func TestFaultsLeaveNoThreadBehind(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	native.RestoreFloats()
	defer native.RestoreFloats()
	const n = 32
	host, err := unix.Mmap(-1, 0, 4*n*n, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(host)) })
	launch := func(d *Device) *backend.Job {
		p, err := d.Builtin("linear_f32")
		require.NoError(t, err)
		var inline []byte
		for _, v := range []uint32{n, n, 1, 0, n, 0} {
			inline = binary.LittleEndian.AppendUint32(inline, v)
		}
		return &backend.Job{
			ID: 1, Op: backend.OpLaunch, Program: p, Grid: one(), Block: p.Info().Block, Inline: inline, Context: new(backend.Context),
			Spans: []backend.Span{{Host: host}, {Host: make([]byte, 4*n)}, {Host: make([]byte, 4*n)}},
		}
	}
	gone := trapped(outcome.Trap{Kind: outcome.MemoryGone})
	for name, do := range map[string]func(t *testing.T, d *Device) outcome.Outcome{
		"burst": func(t *testing.T, d *Device) outcome.Outcome {
			ends := make([]backend.End, 1)
			require.Equal(t, 1, d.Burst(1, []backend.Ready{prepared(t, d, launch(d))}, ends))
			return ends[0].Outcome
		},
		"slice": func(t *testing.T, d *Device) outcome.Outcome {
			list := listOf(t, d, 1, launch(d))
			list.Context = new(backend.Context)
			n, end := d.BurstList(list, 0, time.Second)
			require.Equal(t, 1, n)
			return end.Outcome
		},
		"entries of a list": func(t *testing.T, d *Device) outcome.Outcome {
			list := listOf(t, d, 1, launch(d))
			list.Context = new(backend.Context)
			var all result
			require.True(t, d.shortEntries(&slot{job: list}, list, &all))
			return all.outcome
		},
		"task": func(t *testing.T, d *Device) outcome.Outcome {
			job := launch(d)
			work := &task{dev: &Device{}, slot: &slot{job: job}, job: job, items: n, block: n}
			call := native.Call{Grid: job.Grid, Block: job.Block, Inline: job.Inline}
			for i := range job.Spans {
				call.Bindings = append(call.Bindings, job.Spans[i].Host)
			}
			body := job.Program.(*code).body
			_, ok := body.Items(&call)
			require.True(t, ok)
			work.kernel = func(_ *task, _ int, lo, hi uint64) bool { return body.Run(&call, lo, hi) }
			work.run(0)
			return work.outcome()
		},
	} {
		for kind, o := range map[string]Options{"": {}, ", watched": {LogEntries: 16}} {
			t.Run(name+kind, func(t *testing.T) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				d, _ := liveDevice(t, o)
				require.True(t, keeps(subnormal))
				require.Equal(t, gone, do(t, d))
				require.True(t, keeps(subnormal))
			})
		}
	}
}
