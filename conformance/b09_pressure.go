package conformance

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"capgpu/gpuerr"
	"capgpu/outcome"
)

// MemoryCap bounds the growth of a driver's or a gate's private memory for one
// client that only sends.
const MemoryCap = 64 << 20

// pressure:
//
//	Given a client that sends 10,000 small messages and reads no answer, one that
//	submits 10,000 pieces of work and takes no completion, and one that behaves,
//	when all of them continue for as long as they can,
//	then the first is slowed, refused as busy or cut off, and each answer that it does
//	get is typed; the second's queue is full at some point and every accepted piece
//	completes once; neither driver nor gate grows by more than MemoryCap; and the
//	third's work is right meanwhile.
//
// Sources: Magma FlowControl; sDDF response-queue asserts; Chic ENQUEUE_FAILED.
func pressure(c *Case) {
	good := c.session(Bob)
	c.normal(good)
	driver := get[int](c, "find the driver")(c.Stack.Driver(c.Ctx, 0))
	before := c.ownMemory(driver)
	grown := func() (worst int64) {
		worst = c.ownMemory(driver) - before
		for _, pid := range c.Stack.Gates() {
			worst = max(worst, c.ownMemory(pid)-gateMemory)
		}
		return worst
	}

	ctx, stop := context.WithCancel(c.Ctx)
	var behaving sync.WaitGroup
	defer behaving.Wait()
	defer stop()

	var served atomic.Int64
	behaving.Go(func() {
		for ctx.Err() == nil {
			if _, err := right(c.Ctx, c.Stack, good); err != nil {
				c.Failf("who behaves: %v", err)
				return
			}
			served.Add(1)
		}
	})

	n := c.Count(2_000, 10_000)
	if c.Stack.Can().Pace > 1 && c.Size == Short {
		n /= 8 // a machine with such a device is an emulated one
	}

	var peak int64
	var servedThen int64
	answered, refused, err := c.Stack.Flood(c.Ctx, Alice, n, func() {
		peak, servedThen = grown(), served.Load()
		c.Eventually("who behaves is served while another reads nothing", func() error {
			if served.Load() < servedThen+3 && len(c.failures()) == 0 {
				return errors.New("it is not")
			}
			return nil
		})
	})
	if err != nil && refusal(err, gpuerr.Busy, gpuerr.Quota, gpuerr.QueueFull, gpuerr.Disconnected, gpuerr.Protocol, gpuerr.Closed) != "" {
		c.Fatalf("who reads nothing was ended by %v", err)
	}

	c.That(err != nil || answered+refused == n, "of %d questions %d were answered and %d refused, and the rest is not reported", n, answered, refused)
	c.That(peak < MemoryCap, "for a client that reads nothing, a process took %d MiB", peak>>20)

	// The ring: nobody takes completions.
	s := c.session(Alice)
	q, b := c.queue(s), c.buffer(s, 4096)
	taken, full := 0, 0
	want := max(n/c.Stack.Can().Pace, 8)
	for taken < want && full < 3 {
		_, err := q.Submit(c.Ctx, Command{Op: Fill, Dst: b, Bytes: 4, Pattern: uint32(taken)})
		if err == nil {
			taken, full = taken+1, 0
			continue
		}
		c.Refused(err, "submit to a queue that nobody empties", gpuerr.QueueFull, gpuerr.Quota, gpuerr.Busy)
		full++
	}

	c.That(full > 0 || taken == want, "it ended at %d", taken)
	last := uint64(0)
	for _, x := range c.completed(q, taken) {
		c.That(x.Ticket == last+1, "ticket %d comes behind %d", x.Ticket, last)
		c.Ended("a piece of it", x.Outcome, outcome.Success)
		last = x.Ticket
	}

	c.That(grown() < MemoryCap, "for a queue that nobody empties, a process took %d MiB", grown()>>20)
	stop()
	behaving.Wait()
	c.Notef("%d questions unread: %d answered, %d refused, end %v; processes grew by %d KiB; %d of %d taken by a queue that nobody emptied; %d rounds of another", n, answered, refused, err, max(peak, 0)>>10, taken, want, served.Load())
}

// gateMemory is the memory of an idle client's gate, generously.
const gateMemory = 24 << 20
