package accel_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/accel"
	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

func TestAddOnTheDefaultStream(t *testing.T) {
	g, ctx := open(t, accel.Options{}), testContext(t)
	a, b := alloc[float32, accel.Host](t, g, 1000), alloc[float32, accel.Host](t, g, 1000)
	for i := range slice(t, a) {
		slice(t, a)[i], slice(t, b)[i] = float32(i), 0.5
	}
	da, err := accel.ToDevice(ctx, a)
	require.NoError(t, err)
	db, err := accel.CopyToDevice(ctx, b)
	require.NoError(t, err)
	dc := alloc[float32, accel.Device](t, g, 1000)

	require.NoError(t, g.Launch(ctx, accel.Launch{Kernel: kernel(t, g, "vecadd_f32"), Args: []accel.Argument{accel.Arg(da), accel.Arg(db), accel.Arg(dc)}}))
	c, err := accel.ToHost(ctx, dc)
	require.NoError(t, err)
	require.Equal(t, 1000, c.Len())
	for i, v := range slice(t, c) {
		require.Equal(t, float32(i)+0.5, v)
	}

	// A buffer that was consumed is gone, one that was copied is not.
	for _, err := range []error{
		second(accel.Slice(a)), second(accel.ToDevice(ctx, a)), a.Free(ctx), second(accel.ToHost(ctx, dc)), dc.Free(ctx),
		g.Launch(ctx, accel.Launch{Kernel: kernel(t, g, "vecadd_f32"), Args: []accel.Argument{accel.Arg(da), accel.Arg(db), accel.Arg(dc)}}),
	} {
		require.ErrorIs(t, err, accel.Freed)
	}
	require.Equal(t, float32(0.5), slice(t, b)[999])
}

func second[T any](_ T, err error) error { return err }

func TestCapability(t *testing.T) {
	g := open(t, accel.Options{})
	c := g.Capability()
	require.Contains(t, []int{8, 16, 32, 64}, c.WarpSize)
	require.GreaterOrEqual(t, c.MaxThreadsPerBlock, 128)
	require.GreaterOrEqual(t, c.MaxSharedMemoryPerBlock, 16384)
	require.Positive(t, c.GlobalMemAlignment)
}

// TestElementTypes: what has pointers, bools, padding or no fixed size is E-GPU-4005.
func TestElementTypes(t *testing.T) {
	g := open(t, accel.Options{})
	type inner struct {
		A [2]uint16
		B float32
	}
	type plain struct {
		In [3]inner
		C  int64
	}
	alloc[plain, accel.Unified](t, g, 3)
	alloc[[4]float32, accel.Device](t, g, 3)

	for _, err := range []error{
		refused[*int32](t, g), refused[bool](t, g), refused[string](t, g), refused[int](t, g), refused[uintptr](t, g), refused[[]byte](t, g),
		refused[struct{}](t, g), refused[any](t, g), refused[[2]bool](t, g), refused[complex64](t, g),
		refused[struct {
			A uint8
			B uint32
		}](t, g),
		refused[struct {
			A uint32
			B uint8
		}](t, g),
		refused[struct{ In [2]struct{ P *byte } }](t, g),
	} {
		require.ErrorIs(t, err, accel.NotPlain)
	}
}

func refused[T any](t *testing.T, g *accel.GPU) error {
	_, err := accel.Alloc[T, accel.Unified](testContext(t), g, 1)
	return err
}

func TestOutOfMemory(t *testing.T) {
	g, ctx := open(t, accel.Options{}), testContext(t)
	for _, n := range []int{1 << 40, 1<<63 - 1} {
		_, err := accel.Alloc[float64, accel.Device](ctx, g, n)
		require.ErrorIs(t, err, accel.OutOfMemory)
		require.ErrorIs(t, err, gpuerr.Quota)
	}
	for _, n := range []int{0, -1} {
		_, err := accel.Alloc[float64, accel.Device](ctx, g, n)
		require.ErrorIs(t, err, accel.EnqueueFailed)
	}

	var err error
	for range 1000 { // device memory is finite
		if _, err = accel.Alloc[byte, accel.Device](ctx, g, 64<<20); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, accel.OutOfMemory)
	require.ErrorIs(t, err, gpuerr.Quota)
	require.NoError(t, g.Err(), "a refusal is not sticky")
}

func TestLaunchesAreChecked(t *testing.T) {
	g, other, ctx := open(t, accel.Options{}), open(t, accel.Options{}), testContext(t)
	x, y := alloc[float32, accel.Unified](t, g, 64), alloc[float32, accel.Unified](t, g, 64)
	ints, foreign := alloc[int32, accel.Unified](t, g, 64), alloc[float32, accel.Unified](t, other, 64)
	saxpy, tile := kernel(t, g, "saxpy_f32"), kernel(t, g, "matmul_tiled_f32")
	good := []accel.Argument{accel.Arg(x), accel.Arg(y), accel.Value(float32(2))}
	var none *accel.Buffer[float32, accel.Unified]

	for _, c := range []struct {
		launch accel.Launch
		code   accel.Code
		says   string
	}{
		{accel.Launch{Kernel: saxpy, Args: good, Grid: [3]uint32{1}, Block: [3]uint32{1 << 20}}, accel.LaunchLimits, "asked=1048576"},
		{accel.Launch{Kernel: saxpy, Args: good, Grid: [3]uint32{1}, Block: [3]uint32{1 << 31, 1 << 31, 1 << 31}}, accel.LaunchLimits, "Block in one dimension"},
		{accel.Launch{Kernel: saxpy, Args: good, Grid: [3]uint32{1}, Block: [3]uint32{64, 64, 64}}, accel.LaunchLimits, "threads"},
		{accel.Launch{Kernel: saxpy, Args: good, Grid: [3]uint32{1, 1, 1 << 31}}, accel.LaunchLimits, "Grid"},
		{accel.Launch{Kernel: saxpy, Args: good, SharedMem: 1 << 30}, accel.LaunchLimits, "asked=1073741824"},
		{accel.Launch{Kernel: saxpy, Args: good, Block: [3]uint32{64}}, accel.EnqueueFailed, "zero"},
		{accel.Launch{Kernel: saxpy, Args: good, Grid: [3]uint32{0, 1, 0}}, accel.EnqueueFailed, "zero"},
		{accel.Launch{Kernel: saxpy, Args: good, Deadline: -1}, accel.EnqueueFailed, "Deadline"},
		{accel.Launch{Kernel: tile, Args: good, Grid: [3]uint32{1}, Block: [3]uint32{8, 8}}, accel.EnqueueFailed, "Block"},
		{accel.Launch{Args: good}, accel.EnqueueFailed, "Kernel"},
		{accel.Launch{Kernel: kernel(t, other, "saxpy_f32"), Args: good}, accel.EnqueueFailed, "Kernel"},
		{accel.Launch{Kernel: saxpy, Args: good[:2]}, accel.EnqueueFailed, "0 buffers and 1 values are missing"},
		{accel.Launch{Kernel: saxpy, Args: good[1:]}, accel.EnqueueFailed, "1 buffers and 0 values are missing"},
		{accel.Launch{Kernel: saxpy, Args: append(slices.Clone(good), accel.Arg(x))}, accel.EnqueueFailed, "argument 3"},
		{accel.Launch{Kernel: saxpy, Args: append(slices.Clone(good), accel.Value(int32(1)))}, accel.EnqueueFailed, "argument 3"},
		{accel.Launch{Kernel: saxpy, Args: []accel.Argument{accel.Arg(x), accel.Arg(ints), good[2]}}, accel.EnqueueFailed, "argument 1 (y): the kernel takes elements of type f32, not i32"},
		{accel.Launch{Kernel: saxpy, Args: []accel.Argument{accel.Arg(x), accel.Arg(y), accel.Value(2.0)}}, accel.EnqueueFailed, "argument 2 (a): the kernel takes a value of type f32, not f64"},
		{accel.Launch{Kernel: saxpy, Args: []accel.Argument{accel.Arg(x), accel.Arg(foreign), good[2]}}, accel.EnqueueFailed, "argument 1 (y)"},
		{accel.Launch{Kernel: saxpy, Args: []accel.Argument{accel.Arg(x), accel.Arg(none), good[2]}}, accel.EnqueueFailed, "argument 1 (y)"},
	} {
		err := g.Launch(ctx, c.launch)
		require.ErrorIs(t, err, c.code, "%v", c.launch)
		require.ErrorContains(t, err, c.says)
		if c.code == accel.LaunchLimits {
			var numbers *gpuerr.Error
			require.ErrorAs(t, err, &numbers)
			require.Equal(t, gpuerr.LaunchLimit, numbers.Code)
			require.Greater(t, numbers.Asked, numbers.Available)
		}
	}

	require.NoError(t, g.Launch(ctx, accel.Launch{Kernel: saxpy, Args: good, Grid: [3]uint32{2}, Block: [3]uint32{32}}))
	require.NoError(t, g.Err())
	_, err := g.Kernel(ctx, "no such kernel")
	require.ErrorIs(t, err, gpuerr.NoProgram)
	_, err = g.Load(ctx, []byte("no module"))
	require.ErrorIs(t, err, gpuerr.Program)
	require.NoError(t, saxpy.Close(ctx))
}

// TestSticky: a trap is told by the wait for it and by every later call, until Renew.
func TestSticky(t *testing.T) {
	g, ctx := open(t, accel.Options{}), testContext(t)
	h, u := alloc[uint32, accel.Host](t, g, 4), alloc[uint32, accel.Unified](t, g, 4)
	slice(t, h)[3] = 7
	s := stream(t, g)
	trap, fill := kernel(t, g, "trap"), kernel(t, g, "fill_u32")

	e, err := s.Launch(accel.Launch{Kernel: trap, Args: []accel.Argument{accel.Arg(u)}})
	require.NoError(t, err)
	first := e.Synchronize(ctx)
	require.ErrorIs(t, first, accel.DeviceError)
	var how *client.OutcomeError
	require.ErrorAs(t, first, &how)
	require.Equal(t, outcome.TrapCause, how.Outcome.Cause)

	later, err := g.Default().Launch(accel.Launch{Kernel: fill, Args: []accel.Argument{accel.Arg(u), accel.Value(uint32(1))}})
	require.Zero(t, later.ID())
	done, late := e.Done()
	require.True(t, done)
	_, noStream := accel.NewStream[accel.Host](ctx, g)
	_, noBuffer := accel.Alloc[uint32, accel.Host](ctx, g, 1)
	_, noMove := accel.ToDevice(ctx, h)
	for _, err := range []error{
		err, late, noStream, noBuffer, noMove, s.Wait(e), s.Synchronize(ctx), g.Err(), e.Synchronize(ctx),
		second(s.Record()), second(accel.Copy(s, u, u)), second(g.Kernel(ctx, "copy")), second(g.Load(ctx, nil)),
		g.Launch(ctx, accel.Launch{}), // not what is wrong with it
	} {
		require.Equal(t, first, err, "the text of the first")
	}

	require.Equal(t, uint32(0), slice(t, u)[0], "what there is can be read")
	require.NoError(t, u.Free(ctx))
	next, err := g.Renew(ctx)
	require.NoError(t, err)
	defer next.Close(ctx)
	require.NoError(t, next.Err())
	d, err := accel.ToDevice(ctx, h)
	require.NoError(t, err, "a host buffer lives on")
	require.NoError(t, next.Launch(ctx, accel.Launch{Kernel: kernel(t, next, "fill_u32"), Args: []accel.Argument{accel.Arg(d), accel.Value(uint32(1))}}))
	_, err = g.Renew(ctx)
	require.ErrorIs(t, err, accel.DeviceUnavailable)
}

// TestStickyFromAnotherStream: work that was not run for another's fault leads to that.
func TestStickyFromAnotherStream(t *testing.T) {
	g, ctx := open(t, accel.Options{}), testContext(t)
	u := alloc[uint32, accel.Unified](t, g, 4)
	s1, s2, fill := stream(t, g), stream(t, g), kernel(t, g, "fill_u32")
	trapped, err := s1.Launch(accel.Launch{Kernel: kernel(t, g, "trap"), Args: []accel.Argument{accel.Arg(u)}})
	require.NoError(t, err)
	require.NoError(t, s2.Wait(trapped))
	for range 3 {
		if _, err := s2.Launch(fillWith(fill, u, 1)); err != nil {
			require.ErrorIs(t, err, accel.DeviceError)
		}
	}
	err = s2.Synchronize(ctx)
	require.ErrorIs(t, err, accel.DeviceError)
	require.ErrorContains(t, err, "outOfBounds")
	require.ErrorContains(t, err, "Launch trap")
}

// TestMissedDeadline: sticky as the machine has it, or an error of one wait.
func TestMissedDeadline(t *testing.T) {
	for _, survive := range []bool{false, true} {
		g, ctx := open(t, accel.Options{SurviveHang: survive}), testContext(t)
		s := stream(t, g)
		hang, err := s.Launch(accel.Launch{Kernel: kernel(t, g, "spin"), Deadline: 5 * time.Millisecond})
		require.NoError(t, err)
		err = s.Synchronize(ctx)
		require.ErrorIs(t, err, accel.DeviceError)
		var how *client.OutcomeError
		require.True(t, errors.As(err, &how))
		require.Equal(t, outcome.TimedOut, how.Outcome.Kind)
		require.ErrorIs(t, hang.Synchronize(ctx), accel.DeviceError, "its own event tells it each time")

		u := alloc2(t, g, survive)
		if !survive {
			require.Equal(t, err, g.Err())
			continue
		}
		require.NoError(t, g.Err())
		require.NoError(t, s.Synchronize(ctx), "told once")
		require.NoError(t, g.Launch(ctx, accel.Launch{Kernel: kernel(t, g, "fill_u32"), Args: []accel.Argument{accel.Arg(u), accel.Value(uint32(9))}}))
		require.Equal(t, uint32(9), slice(t, u)[3])
	}
}

func alloc2(t *testing.T, g *accel.GPU, works bool) *accel.Buffer[uint32, accel.Unified] {
	u, err := accel.Alloc[uint32, accel.Unified](testContext(t), g, 4)
	if !works {
		require.ErrorIs(t, err, accel.DeviceError)
		return nil
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = u.Free(testContext(t)) })
	return u
}
