package conformance

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"capgpu/gpuerr"
	"capgpu/outcome"
)

// hang:
//
//	Given happy sessions that compute and sad ones with work that fails, hangs, or
//	ignores a cancel,
//	when all of them run at once, again and again,
//	then guilty work ends as failed or timed out (never ok, never as a mere end of a
//	wait) within the bound of a hang; happy work ends ok and its results are right; and
//	the next work of a fresh session is as well. If a device cannot stop deaf work
//	alone, the losses of its neighbours are reported as innocent, and their next work is
//	right. A tenant that is banned for too many hangs learns of it, with the end of the
//	ban; after that end it is not refused any more.
//
// Sources: Magma HangRecovery.Test and .Stress; IGT xe_waitfence exec_queue-reset-wait;
// against Genode and tinygrad, which report a hang as success.
func hang(c *Case) {
	const deadline = 250 * time.Millisecond
	kinds := []Kind{Fault, Hang}
	if why := c.Stack.Cannot(Deaf); why == "" {
		kinds = append(kinds, Deaf)
	} else {
		c.Notef("no deaf work: %s", why)
	}

	// There are two, so that one can continue while the other is banned.
	sad, observer := []Conn{c.dial(Alice), c.dial(Dave)}, c.session(Bob)
	bound := c.describe(observer).HangBound

	ctx, stop := context.WithCancel(c.Ctx)
	var happy sync.WaitGroup
	var done, innocents atomic.Int64
	defer happy.Wait()
	defer stop()

	for _, tenant := range []string{Bob, Carol} {
		s := c.session(tenant)
		happy.Go(func() {
			for ctx.Err() == nil {
				ok, err := right(c.Ctx, c.Stack, s, outcome.Innocent)
				if err != nil {
					c.Failf("the happy session of %s: %v", tenant, err)
					return
				}
				if ok {
					done.Add(1)
				} else {
					innocents.Add(1)
				}
			}
		})
	}

	rounds := c.Count(2, 100) / c.Stack.Can().Pace
	var slowest, waited time.Duration
	open := func() Session {
		s, after := c.openUnbanned(sad...)
		waited += after
		return s
	}

	for round := range max(rounds, 1) {
		for _, k := range kinds {
			s := open()
			w := c.work(s, k, deadline)
			began := time.Now()
			end, err := perform(c.Ctx, s, w)
			c.Must(err, "round %d, %v work", round, k)
			took := time.Since(began)
			c.Ended(fmt.Sprintf("round %d: %v work", round, k), end, w.Want)
			c.That(took <= deadline+bound, "round %d: %v work with a deadline of %v ended after %v; the bound is %v behind it", round, k, deadline, took, bound)
			slowest = max(slowest, took)
			c.Must(s.Close(c.Ctx), "close")
			fresh := open()
			if _, err := right(c.Ctx, c.Stack, fresh); err != nil {
				c.Fatalf("round %d: a fresh session after %v work: %v", round, k, err)
			}
			c.Must(fresh.Close(c.Ctx), "close")
		}
	}

	for _, conn := range sad { // and nobody is banned any more
		s, after := c.openUnbanned(conn)
		waited += after
		c.Must(s.Close(c.Ctx), "close")
	}

	stop()
	happy.Wait()
	c.That(done.Load() > 0, "no happy work ended while others hung")
	if c.Stack.Can().QueueReset || len(kinds) < 3 {
		c.That(innocents.Load() == 0, "%d pieces of happy work were reset, although this device can stop work alone", innocents.Load())
	}

	_, err := perform(c.Ctx, observer, Work{Commands: []Command{{Op: Fill, Dst: c.buffer(observer, 64), Bytes: 64}}})
	c.Must(err, "the observer's fill")
	if err := observer.Close(c.Ctx); err != nil {
		c.Refused(err, "close", gpuerr.Closed)
	}

	c.Notef("%d rounds of %v; slowest %v of %v; %d right results of others, %d innocent; %v were for the ends of bans", max(rounds, 1), kinds, slowest.Round(time.Millisecond), deadline+bound, done.Load(), innocents.Load(), waited.Round(time.Second))
}
