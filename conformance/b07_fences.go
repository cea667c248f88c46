package conformance

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"capgpu/gpuerr"
	"capgpu/outcome"
)

// fences:
//
//	Given fences,
//	when they are signalled before and after they are waited for, by clients and by
//	queues, with times of none, half a millisecond, some and any length, and beyond
//	2^32; when a wait is abandoned, and when the other side dies,
//	then each wait ends once, with the outcome of the point or with "pending" when its
//	time is up and not before; the smaller of two times wins; a point that was reached
//	never changes; and the completion of a signal tells when its point ended, by one
//	clock for all queues.
//
// Sources: Magma Semaphore*, PollLongDeadline, PollInfiniteDeadline; tinygrad
// timeline_signal_rollover, wait_late_set; accel ext EVENT_WAIT.
func fences(c *Case) {
	conn := c.dial(Alice)
	s := c.open(conn)
	long := time.Hour
	waits := func(f Fence, value uint64, timeout time.Duration, want outcome.Outcome) time.Duration {
		began := time.Now()
		o, err := f.Wait(c.Ctx, value, timeout)
		c.Must(err, "wait for %d, %v", value, timeout)
		c.Ended("a wait", o, want)
		return time.Since(began)
	}

	// Signal before wait.
	f := c.fence(s)
	c.Must(f.Signal(c.Ctx, 3), "signal")
	waits(f, 1, long, outcome.Success)
	waits(f, 3, 0, outcome.Success)

	// Times: none, less than a millisecond, some. On a busy machine the round trip
	// may hide that a short wait was cut, but hardly each time.
	waits(f, 4, 0, outcome.Outcome{})
	for _, t := range append(slices.Repeat([]time.Duration{990 * time.Microsecond}, 32), 30*time.Millisecond) {
		took := waits(f, 4, t, outcome.Outcome{})
		c.That(took >= t, "a wait of %v ended after %v", t, took)
	}

	// Wait before signal: all are woken, each once.
	var woken atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			o, err := f.Wait(c.Ctx, 4, long)
			if err != nil || o != outcome.Success {
				c.Failf("a wait from before the signal ended %v, %v", o, err)
			}
			woken.Add(1)
		})
	}

	time.Sleep(10 * time.Millisecond)
	c.That(woken.Load() == 0, "%d waits ended before the signal", woken.Load())
	c.Must(f.Signal(c.Ctx, 4), "signal")
	all.Wait()

	// An abandoned wait ends at once; others stay.
	ctx, cancel := context.WithTimeout(c.Ctx, 20*time.Millisecond)
	began := time.Now()
	o, err := f.Wait(ctx, 5, long)
	cancel()
	c.That(o.Kind == outcome.Pending && (errors.Is(err, context.DeadlineExceeded) || err == nil), "a wait that was given up ended %v, %v", o, err)
	c.That(time.Since(began) < Patience, "it took %v to give up a wait", time.Since(began))

	// The smaller of two times counts: the wait's own this time.
	ctx, cancel = context.WithTimeout(c.Ctx, Patience)
	o, err = f.Wait(ctx, 5, 20*time.Millisecond)
	cancel()
	c.Must(err, "a wait whose time is up before its caller's")
	c.Ended("it", o, outcome.Outcome{})

	// Any of several: the first that is signalled ends.
	g := c.fence(s)
	first := make(chan uint64, 2)
	for i, line := range []Fence{f, g} {
		go func() {
			if o, err := line.Wait(c.Ctx, 6, long); err == nil && o == outcome.Success {
				first <- uint64(i)
			}
		}()
	}

	c.Must(g.Signal(c.Ctx, 6), "signal")
	c.That(<-first == 1, "the wait for the other fence ended")
	c.Must(f.Signal(c.Ctx, 6), "signal")
	c.That(<-first == 0, "a wait ended twice")

	// Beyond 2^32, and near the end.
	big := c.fence(s)
	c.Must(big.Signal(c.Ctx, 1<<32-1), "signal")
	waits(big, 1<<32, 0, outcome.Outcome{})
	c.Must(big.Signal(c.Ctx, 1<<32+5), "signal")
	waits(big, 1<<32+5, 0, outcome.Success)
	waits(big, 1<<32+6, 0, outcome.Outcome{})
	c.Must(big.Signal(c.Ctx, 1<<63+1), "signal")
	waits(big, 1<<63, 0, outcome.Success)

	// A point is reached once.
	c.Refused(big.Signal(c.Ctx, 1<<63), "signal backwards", gpuerr.Invalid)
	// By a queue: the worst outcome of the work since the last signal; it never
	// changes.
	q, line := c.queue(s), c.fence(s)
	bad, good := c.work(s, Fault, 0), c.work(s, Normal, 0)
	c.submit(q, append(append(append([]Command{}, bad.Commands...), good.Commands...),
		Command{Op: Signal, Fence: line, Value: 1})...)

	waits(line, 1, long, bad.Want)
	done := c.completed(q, len(bad.Commands)+len(good.Commands)+1)
	at := done[len(done)-1].EndedAt
	c.That(at == 0, "a signal that ended %v says that it was at %v", bad.Want, at)
	c.submit(q, Command{Op: Fill, Dst: c.buffer(s, 64), Bytes: 64}, Command{Op: Signal, Fence: line, Value: 2})
	waits(line, 2, long, outcome.Success)
	waits(line, 1, 0, bad.Want)
	waits(line, 2, 0, outcome.Success)

	// The completion of a signal tells when, by one clock for all queues.
	done = c.completed(q, 2)
	c.That(done[0].EndedAt == 0, "a fill says that it ended at %v", done[0].EndedAt)
	c.That(done[1].EndedAt > 0 && done[1].DeviceTime == 0, "a signal ended at %v, with a device time of %v", done[1].EndedAt, done[1].DeviceTime)
	const pause = 2 * time.Millisecond
	time.Sleep(pause)
	other := c.queue(s)
	c.submit(other, Command{Op: Signal, Fence: line, Value: 3})
	later := c.completed(other, 1)[0].EndedAt
	c.That(later-done[1].EndedAt >= pause, "two signals ended %v apart, and there were %v between them", later-done[1].EndedAt, pause)

	// A queue waits for a client.
	held := c.fence(s)
	q2 := c.queue(s)
	c.submit(q2, Command{Op: Wait, Fence: held, Value: 1}, Command{Op: Fill, Dst: c.buffer(s, 64), Bytes: 64})
	done, err = q2.Completions(c.Ctx, 2, 20*time.Millisecond)
	c.Must(err, "look at a queue that waits")
	c.That(len(done) == 0, "%d commands behind a wait ended", len(done))
	c.Must(held.Signal(c.Ctx, 1), "signal")
	for _, x := range c.completed(q2, 2) {
		c.Ended("a command behind a signalled fence", x.Outcome, outcome.Success)
	}

	// Its own close, and the other side's death.
	ends := make(chan error, 2)
	for _, line := range []Fence{held, g} {
		go func() {
			o, err := line.Wait(c.Ctx, 100, long)
			if err == nil && o.Kind != outcome.Revoked && o.Kind != outcome.DeviceLost {
				err = errors.New("a wait for what never came ended " + o.String())
			} else if err == nil {
				err = gpuerr.Revoked
			}
			ends <- err
		}()
	}

	time.Sleep(10 * time.Millisecond)
	c.Must(held.Close(c.Ctx), "close a fence")
	c.Refused(<-ends, "a wait for a fence that was closed", gone...)
	epoch := c.epoch(conn, 0)
	c.Must(c.Stack.Kill(c.Ctx, 0), "kill the driver")
	select {
	case err := <-ends:
		c.Refused(err, "a wait whose driver has died", append([]gpuerr.Code{gpuerr.DeviceLost}, gone...)...)
	case <-time.After(Patience):
		c.Fatalf("a wait whose driver has died goes on")
	}

	c.ready(conn, 0, epoch)
}
