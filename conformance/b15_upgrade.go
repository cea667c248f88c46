package conformance

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"capgpu/gpuerr"
	"capgpu/outcome"
)

// upgrade:
//
//	Given sessions with buffers, an unsignalled fence with a waiter, queues with work in
//	flight, and clients that compute,
//	when the driver is replaced by a successor, again and again,
//	then the sessions live on in the same epoch, the buffers keep their contents, the
//	wait continues and ends by its signal, and each piece of work ends once, ok with the
//	right results or with a true failure; and a successor that speaks another version is
//	refused, naming both, without anybody noticing.
//
// Sources: Genode 24.02; gVisor TestGPUCheckpointRestore; IGT hotrebind-lateclose;
// tinygrad warm boot; gVisor #12642.
func upgrade(c *Case) {
	conn := c.dial(Alice)
	s := c.open(conn)
	c.normal(s)
	if why := c.Stack.CannotUpgrade(); why != "" {
		c.Refused(c.Stack.Upgrade(c.Ctx, 0, true), "upgrade", gpuerr.Unimplemented)
		c.normal(s)
		c.Cannot(why)
	}

	epoch := c.epoch(conn, 0)
	kept, line, q := c.buffer(s, 64<<10), c.fence(s), c.queue(s)
	want := bytes.Repeat([]byte("kept over upgrades, all of it..."), 2<<10)
	c.Must(kept.Write(c.Ctx, 0, want), "write")
	type end struct {
		o   outcome.Outcome
		err error
	}

	waited := make(chan end, 1)
	go func() {
		o, err := line.Wait(c.Ctx, 1, time.Hour)
		waited <- end{o, err}
	}()

	ctx, stop := context.WithCancel(c.Ctx)
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stop()

	var rounds atomic.Int64
	for _, tenant := range []string{Bob, Carol} {
		their := c.session(tenant)
		clients.Go(func() {
			for ctx.Err() == nil {
				if _, err := right(c.Ctx, c.Stack, their); err != nil {
					c.Failf("a client of %s: %v", tenant, err)
					return
				}
				rounds.Add(1)
			}
		})
	}

	var slowest time.Duration
	times := c.Count(2, 10)
	for range times {
		before := get[int](c, "find the driver")(c.Stack.Driver(c.Ctx, 0))
		slow := c.work(s, Slow, 0)
		first := c.submit(q, slow.Commands...)
		began := time.Now()
		c.Must(c.Stack.Upgrade(c.Ctx, 0, true), "upgrade")
		slowest = max(slowest, time.Since(began))
		after := get[int](c, "find the driver")(c.Stack.Driver(c.Ctx, 0))
		c.That(after != before, "the driver is process %d, as before", after)
		for _, x := range c.completed(q, len(slow.Commands)) {
			c.That(x.Ticket == first, "ticket %d completes, want %d", x.Ticket, first)
			c.That(x.Outcome == outcome.Success || x.Outcome.Kind == outcome.Innocent, "work in flight ended %v", x.Outcome)
			first++
		}

		got := make([]byte, len(want))
		c.Must(kept.Read(c.Ctx, 0, got), "read")
		c.That(bytes.Equal(got, want), "a buffer's bytes have changed")
		c.That(c.epoch(conn, 0) == epoch, "the epoch is %d, and was %d", c.epoch(conn, 0), epoch)
		c.normal(s)
	}

	before := get[int](c, "find the driver")(c.Stack.Driver(c.Ctx, 0))
	err := c.Stack.Upgrade(c.Ctx, 0, false)
	c.Refused(err, "a successor of another version", gpuerr.Version)
	c.That(names(err, "have=") && names(err, "want="), "it was refused without both versions: %v", err)
	after := get[int](c, "find the driver")(c.Stack.Driver(c.Ctx, 0))
	c.That(after == before, "a refused successor has replaced the driver")
	c.normal(s)
	select {
	case e := <-waited:
		c.Fatalf("a wait ended with the upgrade: %v, %v", e.o, e.err)
	default:
	}

	c.Must(line.Signal(c.Ctx, 1), "signal")
	e := <-waited
	c.Must(e.err, "a wait from before the upgrades")
	c.Ended("it", e.o, outcome.Success)
	stop()
	clients.Wait()
	c.Notef("%d upgrades, the slowest %v, %d right results of others meanwhile; a wrong version refused", times, slowest.Round(time.Millisecond), rounds.Load())
}
