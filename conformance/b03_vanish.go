package conformance

import (
	"fmt"
	"time"
)

// vanish:
//
//	Given a client that has submitted work that hangs, and more behind it, and waits,
//	when its connection breaks as if its process had died,
//	then all its charges are back within the bound of revocation, the device was not
//	reset for it, and another session's work continues and is right.
//
// Sources: Magma SubmitAndDisconnect; IGT close-pending-*, basic-close-race; against
// Genode _destroy_session.
func vanish(c *Case) {
	other := c.session(Bob)
	bound := c.describe(other).RevokeBound
	c.normal(other)
	resets := get[uint64](c, "count resets")(c.Stack.Resets(c.Ctx, 0))
	var slowest time.Duration
	rounds := c.Count(3, 30)
	for round := range rounds {
		conn := get[Conn](c, "connect")(c.Stack.Dial(c.Ctx, Alice))
		s := get[Session](c, "open a session")(conn.Open(c.Ctx, 0))
		w := c.work(s, Hang, 20*time.Second)
		q := c.queue(s)
		c.submit(q, w.Commands...)
		c.submit(q, c.work(s, Normal, 0).Commands...)
		line := c.fence(s)
		waited := make(chan error, 1)
		go func() {
			_, err := line.Wait(c.Ctx, 1, Patience)
			waited <- err
		}()

		if round%2 == 0 { // while it runs; otherwise before it runs
			time.Sleep(30 * time.Millisecond)
		}

		began := time.Now()
		conn.Vanish()
		c.Eventually("the charges of who has vanished are back", func() error {
			text, err := c.held(Alice)
			if err == nil && text != "" {
				err = fmt.Errorf("after %v it has %s", time.Since(began), text)
			}
			return err
		})

		took := time.Since(began)
		c.That(took <= bound, "the charges came back after %v; the bound is %v", took, bound)
		slowest = max(slowest, took)
		c.That(<-waited != nil, "a wait on a broken connection has succeeded")
		c.normal(other)
	}

	after := get[uint64](c, "count resets")(c.Stack.Resets(c.Ctx, 0))
	c.That(after == resets, "the device was reset %d times for who has vanished", after-resets)
	c.Notef("%d times; charges back after %v at most, bound %v; no reset", rounds, slowest.Round(time.Microsecond), bound)
}
