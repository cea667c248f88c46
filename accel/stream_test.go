package accel_test

import (
	"context"
	"errors"
	"io"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capgpu/accel"
	"capgpu/driver/session/sessiontest"
	"capgpu/gpu"
	"capgpu/gpu/backend/mock"
	"capgpu/gpuerr"
	"capgpu/ledger"
)

func fillWith(k *accel.Kernel, b *accel.Buffer[uint32, accel.Unified], v uint32) accel.Launch {
	return accel.Launch{Kernel: k, Args: []accel.Argument{accel.Arg(b), accel.Value(v)}}
}

func copyOf(k *accel.Kernel, src, dst *accel.Buffer[uint32, accel.Unified]) accel.Launch {
	return accel.Launch{Kernel: k, Args: []accel.Argument{accel.Arg(src), accel.Arg(dst)}}
}

// TestBorrows: a buffer is in use until a wait covers it, however long the work is over.
func TestBorrows(t *testing.T) {
	g, ctx := open(t, accel.Options{}), testContext(t)
	fill := kernel(t, g, "fill_u32")
	s1, s2 := stream(t, g), stream(t, g)
	waits := map[string]func(e accel.Event[accel.Device]) error{
		"its event":                func(e accel.Event[accel.Device]) error { return e.Synchronize(ctx) },
		"its stream":               func(accel.Event[accel.Device]) error { return s1.Synchronize(ctx) },
		"the default stream after": func(accel.Event[accel.Device]) error { e, _ := g.Default().Record(); return e.Synchronize(ctx) },
		"a stream that waits for it": func(e accel.Event[accel.Device]) error {
			require.NoError(t, s2.Wait(e))
			return s2.Synchronize(ctx)
		},
		"an event after one that waits for it": func(e accel.Event[accel.Device]) error {
			require.NoError(t, s2.Wait(e))
			later, err := s2.Record()
			require.NoError(t, err)
			return later.Synchronize(ctx)
		},
		"a later event": func(accel.Event[accel.Device]) error {
			later, err := s1.Record()
			require.NoError(t, err)
			return later.Synchronize(ctx)
		},
	}
	for name, wait := range waits {
		u := alloc[uint32, accel.Unified](t, g, 4)
		before, err := s1.Record()
		require.NoError(t, err)
		e, err := s1.Launch(fillWith(fill, u, 5))
		require.NoError(t, err)

		for {
			done, err := e.Done()
			require.NoError(t, err)
			if done {
				break
			}
		}
		require.NoError(t, before.Synchronize(ctx))
		require.NoError(t, s2.Synchronize(ctx))
		_, err = accel.Slice(u)
		require.ErrorIs(t, err, accel.BorrowActive, "%s: done is no wait, nor is one for what came before, or for another stream", name)
		require.ErrorIs(t, u.Free(ctx), accel.BorrowActive)

		require.NoError(t, wait(e), name)
		require.Equal(t, uint32(5), slice(t, u)[0], name)
		require.NoError(t, u.Free(ctx), name)
	}
}

// TestTwoStreamsAndOneBuffer: both may read; else they are ordered by an event.
func TestTwoStreamsAndOneBuffer(t *testing.T) {
	g, ctx := open(t, accel.Options{}), testContext(t)
	fill, cp := kernel(t, g, "fill_u32"), kernel(t, g, "copy")
	s1, s2 := stream(t, g), stream(t, g)
	src, a, b := alloc[uint32, accel.Unified](t, g, 4), alloc[uint32, accel.Unified](t, g, 4), alloc[uint32, accel.Unified](t, g, 4)

	_, err := s1.Launch(copyOf(cp, src, a))
	require.NoError(t, err)
	_, err = s2.Launch(copyOf(cp, src, b))
	require.NoError(t, err, "two readers")
	_, err = s2.Launch(fillWith(fill, src, 1))
	require.ErrorIs(t, err, accel.BorrowActive, "a writer beside a reader")
	_, err = s2.Launch(copyOf(cp, a, b))
	require.ErrorIs(t, err, accel.BorrowActive, "a reader beside a writer")

	e, err := s1.Record()
	require.NoError(t, err)
	require.NoError(t, s2.Wait(e))
	_, err = s2.Launch(fillWith(fill, src, 1))
	require.NoError(t, err)
	_, err = s2.Launch(copyOf(cp, a, b))
	require.NoError(t, err)
	require.NoError(t, s2.Synchronize(ctx))
	require.Equal(t, uint32(1), slice(t, src)[0])
}

func TestCopies(t *testing.T) {
	g, other, ctx := open(t, accel.Options{}), open(t, accel.Options{}), testContext(t)
	s := stream(t, g)
	p, d, u := alloc[uint64, accel.Staging](t, g, 3), alloc[uint64, accel.Device](t, g, 3), alloc[uint64, accel.Unified](t, g, 3)
	slice(t, p)[2] = 42
	_, err := accel.Copy(s, d, p)
	require.NoError(t, err)
	_, err = accel.Copy(s, u, d)
	require.NoError(t, err)
	require.NoError(t, s.Synchronize(ctx))
	require.Equal(t, []uint64{0, 0, 42}, slice(t, u))

	_, err = accel.Copy(s, u, alloc[uint64, accel.Device](t, g, 4))
	require.ErrorIs(t, err, accel.EnqueueFailed)
	_, err = accel.Copy(s, u, u)
	require.ErrorIs(t, err, accel.EnqueueFailed)
	_, err = accel.Copy(s, u, alloc[uint64, accel.Device](t, other, 3))
	require.ErrorIs(t, err, accel.EnqueueFailed)
	_, err = accel.Copy[uint64, accel.Unified, accel.Device](s, nil, d)
	require.ErrorIs(t, err, accel.EnqueueFailed)
}

func TestEvents(t *testing.T) {
	g, other, ctx := open(t, accel.Options{}), open(t, accel.Options{}), testContext(t)
	s := stream(t, g)
	start, err := s.Record()
	require.NoError(t, err)
	require.Equal(t, uint32(1), start.ID())
	_, err = s.Launch(accel.Launch{Kernel: kernel(t, g, "fill_u32"), Args: []accel.Argument{accel.Arg(alloc[uint32, accel.Device](t, g, 1<<20)), accel.Value(uint32(3))}})
	require.NoError(t, err)
	end, err := g.Default().Record()
	require.NoError(t, err)
	require.Equal(t, uint32(3), end.ID(), "numbers ascend over all streams")
	require.NoError(t, end.Synchronize(ctx))
	ms, err := accel.Elapsed(start, end)
	require.NoError(t, err)
	require.Positive(t, ms)
	back, err := accel.Elapsed(end, start)
	require.NoError(t, err)
	require.Equal(t, -ms, back)

	foreign, err := other.Default().Record()
	require.NoError(t, err)
	for _, err := range []error{s.Wait(foreign), second(accel.Elapsed(start, foreign)), second(accel.Elapsed(foreign, start))} {
		require.ErrorIs(t, err, accel.ForeignEvent)
		require.ErrorIs(t, err, accel.InvalidEvent)
	}
	var zero accel.Event[accel.Host]
	for _, err := range []error{s.Wait(zero), s.Wait(nil), zero.Synchronize(ctx), second(zero.Done()), second(accel.Elapsed(zero, start)), second(accel.Elapsed(start, nil))} {
		require.ErrorIs(t, err, accel.InvalidEvent)
		require.NotErrorIs(t, err, accel.ForeignEvent)
	}
	require.Zero(t, zero.ID())

	pending, err := s.Launch(accel.Launch{Kernel: kernel(t, g, "spin")})
	require.NoError(t, err)
	_, err = accel.Elapsed(start, pending)
	require.ErrorIs(t, err, accel.InvalidEvent)
	short, stop := context.WithTimeout(ctx, time.Millisecond)
	defer stop()
	require.ErrorIs(t, pending.Synchronize(short), context.DeadlineExceeded)
}

func TestStreamsEnd(t *testing.T) {
	g, ctx := open(t, accel.Options{}), testContext(t)
	u := alloc[uint32, accel.Unified](t, g, 4)
	fill := kernel(t, g, "fill_u32")
	require.ErrorIs(t, g.Default().Close(ctx), accel.InvalidStream)

	for i := range 3 * 64 { // places are used again, numbers are not
		s, err := accel.NewStream[accel.Unified](ctx, g)
		require.NoError(t, err)
		require.Equal(t, uint32(i+1), s.ID())
		e, err := s.Launch(fillWith(fill, u, uint32(i)))
		require.NoError(t, err)
		require.NoError(t, s.Close(ctx))
		require.Equal(t, uint32(i), slice(t, u)[0], "the end of a stream is a wait for it")
		require.NoError(t, e.Synchronize(ctx))
		require.NoError(t, s.Close(ctx))
		require.NoError(t, g.Default().Wait(e))
		for _, err := range []error{second(s.Record()), s.Wait(e), s.Synchronize(ctx), second(s.Launch(fillWith(fill, u, 1)))} {
			require.ErrorIs(t, err, accel.InvalidStream)
		}
	}

	for range 63 {
		stream(t, g)
	}
	_, err := accel.NewStream[accel.Host](ctx, g)
	require.ErrorIs(t, err, accel.EnqueueFailed)
	require.ErrorIs(t, err, gpuerr.Quota)
}

// TestAStreamEndsWithWorkThatDoesNot: a close that is in a hurry revokes.
func TestAStreamEndsWithWorkThatDoesNot(t *testing.T) {
	g, ctx := open(t, accel.Options{}), testContext(t)
	u := alloc[uint32, accel.Unified](t, g, 4)
	s := stream(t, g)
	_, err := s.Launch(accel.Launch{Kernel: kernel(t, g, "spin")})
	require.NoError(t, err)
	e, err := s.Launch(fillWith(kernel(t, g, "fill_u32"), u, 9))
	require.NoError(t, err)

	short, stop := context.WithTimeout(ctx, time.Millisecond)
	defer stop()
	require.ErrorIs(t, s.Close(short), context.DeadlineExceeded)
	require.ErrorContains(t, e.Synchronize(ctx), "revoked")
	require.Equal(t, uint32(0), slice(t, u)[0], "nothing of it runs any more")
	require.NoError(t, g.Err())
}

// TestAFullStream: a launch waits for room, and nothing stops the streams that wait for this one.
func TestAFullStream(t *testing.T) {
	g, ctx := open(t, accel.Options{}), testContext(t)
	fill, u := kernel(t, g, "fill_u32"), alloc[uint32, accel.Unified](t, g, 4)
	s := stream(t, g)
	for i := range 1500 {
		_, err := s.Launch(fillWith(fill, u, uint32(i)))
		require.NoError(t, err)
	}
	require.NoError(t, g.Launch(ctx, fillWith(fill, u, 7)))
	require.Equal(t, uint32(7), slice(t, u)[0])
}

// TestRefusedByTheDriver: a refusal of the ring is an error of its event, and not sticky; a stream
// that waits for an event goes on where the signal of that was refused.
func TestRefusedByTheDriver(t *testing.T) {
	ctx := testContext(t)
	svc := sessiontest.Start(t, sessiontest.Options{Attach: func(a *gpu.Attach) { a.Limits[ledger.InFlight] = 1 }})
	g, err := accel.Open(ctx, svc.Dial(t), accel.Options{SurviveHang: true})
	require.NoError(t, err)
	defer g.Close(ctx)
	s1, s2 := stream(t, g), stream(t, g)
	spin, fill, u := kernel(t, g, "spin"), kernel(t, g, "fill_u32"), alloc[uint32, accel.Unified](t, g, 4)
	for n := range uint64(3) {
		long, err := s2.Launch(accel.Launch{Kernel: spin, Deadline: 5 * time.Millisecond}) // its signal finds no room
		require.NoError(t, err)
		require.Eventually(t, func() bool { return svc.Device.Status("").Tenants[0].Sessions[0].Outcomes["timedOut"] == n+1 }, 10*time.Second, time.Millisecond)
		require.NoError(t, s1.Wait(long))
		e, err := s1.Launch(fillWith(fill, u, 7))
		require.NoError(t, err)
		if err := e.Synchronize(ctx); err != nil && !errors.Is(err, accel.EnqueueFailed) {
			require.ErrorIs(t, err, accel.DeviceError)
		}
		require.NoError(t, ctx.Err(), "nothing waits for ever")
		require.Error(t, long.Synchronize(ctx))
	}
	require.NoError(t, g.Err())
}

// TestOneGoroutineAtATime: the second one is refused, and nothing is harmed.
func TestOneGoroutineAtATime(t *testing.T) {
	g, ctx := open(t, accel.Options{}), testContext(t)
	s := stream(t, g)
	fill := kernel(t, g, "fill_u32")
	var busy, fine int
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 4 {
		u := alloc[uint32, accel.Unified](t, g, 4)
		all.Go(func() {
			for i := range 300 {
				_, err := s.Launch(fillWith(fill, u, uint32(i)))
				mu.Lock()
				if err == nil {
					fine++
				} else {
					busy++
					require.ErrorIs(t, err, accel.EnqueueFailed)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	require.Positive(t, fine)
	require.Equal(t, 1200, fine+busy)
	require.NoError(t, s.Synchronize(ctx))
}

// TestManyGoroutines: each has a stream of its own, all share the default one and the kernels.
func TestManyGoroutines(t *testing.T) {
	trace := accel.NewTrace()
	g, ctx := open(t, accel.Options{Trace: trace}), testContext(t)
	fill, cp := kernel(t, g, "fill_u32"), kernel(t, g, "copy")
	var all sync.WaitGroup
	for k := range uint32(6) {
		s := stream(t, g)
		a, b := alloc[uint32, accel.Unified](t, g, 300), alloc[uint32, accel.Unified](t, g, 300)
		all.Go(func() {
			for i := range uint32(100) {
				_, err := s.Launch(fillWith(fill, a, i*k))
				assert.NoError(t, err)
				e, err := s.Launch(copyOf(cp, a, b))
				assert.NoError(t, err)
				if i%10 == 0 { // behind everybody's work; another goroutine may have the default stream
					if _, err := g.Default().Record(); err != nil {
						assert.ErrorIs(t, err, accel.EnqueueFailed)
					}
				}
				if i%7 == 0 {
					assert.NoError(t, e.Synchronize(ctx))
					values, err := accel.Slice(b)
					assert.NoError(t, err)
					assert.Equal(t, i*k, values[299])
				}
				_, err = e.Done()
				assert.NoError(t, err)
			}
			assert.NoError(t, s.Synchronize(ctx))
		})
	}
	all.Wait()
	require.NoError(t, trace.WritePerf(io.Discard))
}

func TestTheEndOfTheService(t *testing.T) {
	ctx := testContext(t)
	for name, end := range map[string]func(*sessiontest.Service){
		"driver": (*sessiontest.Service).KillDriver,
		"all":    (*sessiontest.Service).Kill,
	} {
		svc := sessiontest.Start(t, sessiontest.Options{})
		g, err := accel.Open(ctx, svc.Dial(t), accel.Options{})
		require.NoError(t, err)
		u, err := accel.Alloc[uint32, accel.Unified](ctx, g, 4)
		require.NoError(t, err)
		values := slice(t, u)
		s, fill := stream(t, g), kernel(t, g, "fill_u32")
		e, err := s.Launch(fillWith(fill, u, 1))
		require.NoError(t, err)
		waits := make(chan error, 1)
		spin, err := g.Default().Launch(accel.Launch{Kernel: kernel(t, g, "spin")})
		require.NoError(t, err)
		go func() { waits <- spin.Synchronize(ctx) }()

		end(svc)
		require.ErrorIs(t, <-waits, accel.DeviceUnavailable, name)
		for err = nil; err == nil; err = s.Wait(e) { // until this process has noticed
			require.NoError(t, ctx.Err())
		}
		require.ErrorIs(t, err, accel.DeviceUnavailable, name)
		for _, err := range []error{
			second(s.Launch(fillWith(fill, u, 1))), second(s.Record()), g.Launch(ctx, fillWith(fill, u, 1)), second(g.Kernel(ctx, "copy")),
			s.Wait(e),
		} {
			require.ErrorIs(t, err, accel.DeviceUnavailable, name)
		}
		require.Len(t, values, 4)
		_ = values[3] // still mapped
		require.NoError(t, u.Free(ctx), "borrowed, but by nobody")
		require.NoError(t, g.Close(ctx))
	}
}

func TestALostDeviceIsSticky(t *testing.T) {
	ctx := testContext(t)
	svc := sessiontest.Start(t, sessiontest.Options{Mock: mock.Options{Script: mock.Script{Faults: []mock.Fault{{Kind: mock.FaultErrorCompletion}}}}})
	g, err := accel.Open(ctx, svc.Dial(t), accel.Options{})
	require.NoError(t, err)
	defer g.Close(ctx)
	u := alloc[uint32, accel.Unified](t, g, 4)
	err = g.Launch(ctx, fillWith(kernel(t, g, "fill_u32"), u, 1))
	require.ErrorIs(t, err, accel.DeviceError)
	require.Equal(t, err, g.Err())
}

func TestOpenSaysThatThereIsNoDevice(t *testing.T) {
	svc, ctx := sessiontest.Start(t, sessiontest.Options{}), testContext(t)
	trace := accel.NewTrace()
	_, err := accel.Open(ctx, svc.Dial(t), accel.Options{Index: math.MaxUint32, Trace: trace})
	require.ErrorIs(t, err, accel.DeviceUnavailable)
	require.ErrorIs(t, err, gpuerr.NoDevice)
	g, err := accel.Open(ctx, svc.Dial(t), accel.Options{Trace: trace, Checked: true})
	require.NoError(t, err, "the trace was given back")
	_, err = accel.Open(ctx, svc.Dial(t), accel.Options{Trace: trace})
	require.ErrorIs(t, err, accel.EnqueueFailed)
	require.NoError(t, g.Close(ctx))
	require.NoError(t, g.Close(ctx))
	require.ErrorIs(t, g.Launch(ctx, accel.Launch{}), accel.DeviceUnavailable)
	_, err = g.Renew(ctx)
	require.ErrorIs(t, err, accel.DeviceUnavailable)
}
