package gate

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/driver/session/sessiontest"
	"capgpu/gpuerr"
	"capgpu/schema"
)

// commands fills in a list of commands, one by each function.
func commands(fill ...func(schema.Command) error) func(func(int32) (schema.Command_List, error)) error {
	return func(alloc func(int32) (schema.Command_List, error)) error {
		list, err := alloc(int32(len(fill)))
		if err != nil {
			return err
		}
		for i, f := range fill {
			if err := f(list.At(i)); err != nil {
				return err
			}
		}
		return nil
	}
}

func copyCommand(dst, dstOff, src, srcOff, length uint64) func(schema.Command) error {
	return func(c schema.Command) error {
		c.SetCopy()
		c.Copy().SetDst(uint32(dst))
		c.Copy().SetDstOffset(dstOff)
		c.Copy().SetSrc(uint32(src))
		c.Copy().SetSrcOffset(srcOff)
		c.Copy().SetLength(length)
		return nil
	}
}

func fillCommand(buffer uint32, off, length uint64, pattern uint32) func(schema.Command) error {
	return func(c schema.Command) error {
		c.SetFill()
		c.Fill().SetBuffer(buffer)
		c.Fill().SetFillOffset(off)
		c.Fill().SetFillLength(length)
		c.Fill().SetPattern(pattern)
		return nil
	}
}

func signalCommand(fence uint32, value uint64) func(schema.Command) error {
	return func(c schema.Command) error {
		c.SetSignal()
		c.Signal().SetFence(fence)
		c.Signal().SetValue(value)
		return nil
	}
}

func waitCommand(fence uint32, value uint64) func(schema.Command) error {
	return func(c schema.Command) error {
		c.SetWait()
		c.Wait().SetWaitFence(fence)
		c.Wait().SetWaitValue(value)
		return nil
	}
}

func launchCommand(p schema.GpuProgram, grid uint32, block uint16, inline []byte, buffers ...uint32) func(schema.Command) error {
	return func(c schema.Command) error {
		c.SetLaunch()
		l := c.Launch()
		l.SetGridX(grid)
		l.SetBlockX(block)
		if err := l.SetInlineArgs(inline); err != nil {
			return err
		}
		list, err := l.NewBindings(int32(len(buffers)))
		if err != nil {
			return err
		}
		for i, id := range buffers {
			list.At(i).SetBuffer(id)
		}
		return l.SetProgram(p.AddRef())
	}
}

func (r *rig) program(s schema.GpuSession, name string) schema.GpuProgram {
	r.t.Helper()
	f, release := s.OpenProgram(r.ctx, func(p schema.GpuProgramSession_openProgram_Params) error { return p.SetName(name) })
	return await(r, f, release).Program()
}

func TestSessionSubmit(t *testing.T) {
	r := newRig(t, sessiontest.Options{})
	s := r.open()
	buf, a := r.buffer(s, 4096)
	_, b := r.buffer(s, 4096)
	fence, fenceID := r.fence(s)
	mem := r.mapped(buf)
	list := commands(
		fillCommand(b, 0, 4096, 0x01020304),
		signalCommand(fenceID, 5),
		waitCommand(fenceID, 5),
		copyCommand(uint64(a), 8, uint64(b), 0, 16),
	)

	f, release := s.Submit(r.ctx, func(p schema.GpuSession_submit_Params) error {
		if err := p.SetFence(fence.AddRef()); err != nil {
			return err
		}
		return list(p.NewCommands)
	})
	require.Equal(t, uint64(1), await(r, f, release).Ticket())
	wait, release := fence.Wait(r.ctx, waitFor(10*time.Second))
	require.True(t, await(r, wait, release).Ok())
	value, release := fence.Value(r.ctx, nil)
	v := await(r, value, release)
	require.Equal(t, uint64(6), v.Reached())
	require.Equal(t, uint64(6), v.Promised())
	require.Equal(t, uint32(0x01020304), binary.LittleEndian.Uint32(mem[8:]))
	require.Zero(t, mem[24])

	again, release := s.Submit(r.ctx, func(p schema.GpuSession_submit_Params) error {
		return commands(fillCommand(b, 0, 4, 0))(p.NewCommands)
	})
	require.Equal(t, uint64(6), await(r, again, release).Ticket())

	// A second promise of a value that is already promised, or of a lower one, in
	// one batch or in two.
	for _, values := range [][]uint64{{6}, {7, 7}, {0}} {
		refusedSubmit, release := s.Submit(r.ctx, func(p schema.GpuSession_submit_Params) error {
			var list []func(schema.Command) error
			for _, v := range values {
				list = append(list, signalCommand(fenceID, v))
			}
			return commands(list...)(p.NewCommands)
		})
		require.Contains(t, refused(r, gpuerr.Invalid, refusedSubmit, release), "promised already")
	}

	low, release := fence.Signal(r.ctx, func(p schema.GpuFence_signal_Params) error { p.SetValue(6); return nil })
	refused(r, gpuerr.Invalid, low, release)
	high, release := fence.Signal(r.ctx, func(p schema.GpuFence_signal_Params) error { p.SetValue(100); return nil })
	await(r, high, release)
	at, release := fence.WaitValue(r.ctx, func(p schema.GpuFence_waitValue_Params) error {
		p.SetValue(100)
		p.SetTimeoutNanos(1e10)
		return nil
	})
	require.True(t, await(r, at, release).Ok())
	signalled, release := s.SubmitFenceSignal(r.ctx, func(p schema.GpuMemorySession_submitFenceSignal_Params) error { p.SetFence(fenceID); return nil })
	require.Equal(t, uint64(101), await(r, signalled, release).Value())
	end, release := fence.Signal(r.ctx, func(p schema.GpuFence_signal_Params) error { p.SetValue(math.MaxUint64); return nil })
	await(r, end, release)
	full, release := s.SubmitFenceSignal(r.ctx, func(p schema.GpuMemorySession_submitFenceSignal_Params) error { p.SetFence(fenceID); return nil })
	require.Contains(t, refused(r, gpuerr.Invalid, full, release), "timeline")
}

func TestMemcpyAndFences(t *testing.T) {
	r := newRig(t, sessiontest.Options{})
	s := r.open()
	src, a := r.buffer(s, 4096)
	dst, b := r.buffer(s, 4096)
	fence, id := r.fence(s)
	copy(r.mapped(src), "copied")
	memcpy, release := s.SubmitMemcpy(r.ctx, func(p schema.GpuMemorySession_submitMemcpy_Params) error {
		p.SetDst(b)
		p.SetSrc(a)
		p.SetBytes(8)
		return nil
	})
	await(r, memcpy, release)
	early, release := s.SubmitFenceWait(r.ctx, func(p schema.GpuMemorySession_submitFenceWait_Params) error { p.SetFence(id); return nil })
	refused(r, gpuerr.Invalid, early, release)
	signal, release := s.SubmitFenceSignal(r.ctx, func(p schema.GpuMemorySession_submitFenceSignal_Params) error { p.SetFence(id); return nil })
	require.Equal(t, uint64(1), await(r, signal, release).Value())
	hold, release := s.SubmitFenceWait(r.ctx, func(p schema.GpuMemorySession_submitFenceWait_Params) error { p.SetFence(id); return nil })
	await(r, hold, release)
	wait, release := fence.Wait(r.ctx, waitFor(10*time.Second))
	require.True(t, await(r, wait, release).Ok())
	require.Equal(t, "copied", string(r.mapped(dst)[:6]))

	// A timeout is a result.
	later, release := fence.WaitValue(r.ctx, func(p schema.GpuFence_waitValue_Params) error {
		p.SetValue(9)
		p.SetTimeoutNanos(1e6)
		return nil
	})

	res := await(r, later, release)
	require.False(t, res.Ok())
	o, err := res.Outcome()
	require.NoError(t, err)
	require.Equal(t, schema.OutcomeKind_pending, o.Kind())
}

// The fence of work that traps reports the trap, with its place.
func TestTrapIsAnOutcome(t *testing.T) {
	r := newRig(t, sessiontest.Options{})
	s := r.open()
	_, a := r.buffer(s, 4096)
	fence, _ := r.fence(s)
	launch, release := s.LaunchKernel(r.ctx, kernel{"trap", 1, 1, []uint32{a}, fence}.params)
	await(r, launch, release)
	wait, release := fence.Wait(r.ctx, waitFor(10*time.Second))
	res := await(r, wait, release)
	require.False(t, res.Ok())
	o, err := res.Outcome()
	require.NoError(t, err)
	require.Equal(t, schema.OutcomeKind_failed, o.Kind())
	require.Equal(t, schema.OutcomeCause_trap, o.Cause())
	trap, err := o.Trap()
	require.NoError(t, err)
	require.NotEqual(t, schema.TrapKind_none, trap.Kind())
	poll, release := fence.Poll(r.ctx, nil)
	status, err := await(r, poll, release).Status()
	require.NoError(t, err)
	require.Equal(t, "failed", status)

	described, release := s.Describe(r.ctx, nil)
	d, err := await(r, described, release).Description()
	require.NoError(t, err)
	poisoned, err := d.Poisoned()
	require.NoError(t, err)
	require.Equal(t, schema.OutcomeKind_failed, poisoned.Kind(), "the session tells what poisoned it")
	require.Equal(t, schema.OutcomeCause_trap, poisoned.Cause())
}

func TestQueue(t *testing.T) {
	r := newRig(t, sessiontest.Options{})
	s := r.open()
	buf, a := r.buffer(s, 4096)
	_, fence := r.fence(s)
	fill := r.program(s, "fill_u32")
	made, release := s.CreateQueue(r.ctx, nil)
	q := await(r, made, release).Queue()
	collect := func(timeout time.Duration) schema.Completion_List {
		f, release := q.Completions(r.ctx, func(p schema.GpuQueue_completions_Params) error {
			p.SetMax(100)
			p.SetTimeoutNanos(uint64(timeout))
			return nil
		})
		list, err := await(r, f, release).Completions()
		require.NoError(t, err)
		return list
	}

	require.Zero(t, collect(0).Len())
	require.Zero(t, collect(time.Millisecond).Len())
	submitted, release := q.Submit(r.ctx, func(p schema.GpuQueue_submit_Params) error {
		return commands(
			launchCommand(fill, 4, 256, []byte{7, 0, 0, 0}, a),
			copyCommand(uint64(a), 0, uint64(a), 2048, 1024),
			signalCommand(fence, 1),
		)(p.NewCommands)
	})
	require.Equal(t, uint64(1), await(r, submitted, release).FirstTicket())
	for next := uint64(1); next <= 3; {
		list := collect(10 * time.Second)
		require.NotZero(t, list.Len())
		for i := range list.Len() {
			require.Equal(t, next, list.At(i).Ticket())
			o, err := list.At(i).Outcome()
			require.NoError(t, err)
			require.Equal(t, schema.OutcomeKind_ok, o.Kind())
			signal := next == 3 // which tells when it ended, and work how long it took
			require.Equal(t, signal, list.At(i).EndedAtNanos() > 0)
			require.Equal(t, !signal, list.At(i).DeviceNanos() > 0)
			next++
		}
	}

	require.Equal(t, uint32(7), binary.LittleEndian.Uint32(r.mapped(buf)))

	// Two calls collect completions, and one is stuck: both end with the queue.
	forever := func(p schema.GpuQueue_completions_Params) error {
		p.SetMax(1)
		p.SetTimeoutNanos(math.MaxUint64)
		return nil
	}

	one, releaseOne := q.Completions(r.ctx, forever)
	two, releaseTwo := q.Completions(r.ctx, forever)
	cancelled, release := q.Cancel(r.ctx, nil)
	await(r, cancelled, release)
	for range 2 {
		closed, release := q.Close(r.ctx, nil)
		await(r, closed, release)
	}

	refused(r, gpuerr.Closed, one, releaseOne)
	refused(r, gpuerr.Closed, two, releaseTwo)
}

// A wait that is sent directly after a launch waits for that launch.
func TestWaitBehindLaunch(t *testing.T) {
	r := newRig(t, sessiontest.Options{})
	s := r.open()
	const n = 256
	bufA, a := r.buffer(s, 4*n)
	bufC, c := r.buffer(s, 4*n)
	memA, memC := r.mapped(bufA), r.mapped(bufC)
	fence, _ := r.fence(s)
	for i := range 50 {
		putFloats(memA, func(int) float32 { return float32(i) })
		launch, releaseLaunch := s.LaunchKernel(r.ctx, kernel{"vecadd_f32", 1, n, []uint32{a, a, c}, fence}.params)
		wait, releaseWait := fence.Wait(r.ctx, waitFor(10*time.Second))
		res, err := wait.Struct()
		require.NoError(t, err)
		require.True(t, res.Ok())
		require.Equal(t, float32(2*i), math.Float32frombits(binary.LittleEndian.Uint32(memC)), "round %d", i)
		releaseWait()
		_, err = launch.Struct()
		require.NoError(t, err)
		releaseLaunch()
	}
}
