package mock

import (
	"encoding/binary"
	"runtime"
	"testing"

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
// numbers: the thread keeps them again when the fault has been caught.
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
	for name, job := range map[string]func(d *Device) *backend.Job{
		"launch": launch,
		"list": func(d *Device) *backend.Job {
			return &backend.Job{ID: 1, Op: backend.OpList, Context: new(backend.Context), List: []backend.Job{*launch(d)}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			d, _ := liveDevice(t, Options{Workers: 1})
			require.True(t, keeps(subnormal))
			j := job(d)
			r := d.run(&d.crew.task, &slot{job: j}, j) // here, and not on the engine's thread
			require.Equal(t, gone, r.outcome)
			require.True(t, keeps(subnormal))
		})
	}
}
