package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"capgpu/gpuerr"
	"capgpu/outcome"
)

// deaths:
//
//	Given clients that open sessions and compute in a loop,
//	when the driver is killed again and again,
//	then the only errors they see are of lost: disconnected, device lost, not ready yet;
//	no call hangs and no result is wrong; each time there is a successor, in a later
//	epoch; capabilities of earlier epochs stay dead; and in the end nothing is charged
//	and the manager has as many descriptors as at the start.
//
// Sources: Magma Shutdown.Stress; libvfio-user test_disconnected_socket; gVisor #11545;
// seed 002.
func deaths(c *Case) {
	conn := c.dial(Carol)
	c.Must(c.Stack.Kill(c.Ctx, 0), "kill the first driver, for what is made once")
	epoch := c.ready(conn, 0, c.epoch(conn, 0))
	before := c.settledDescriptors(0)

	old := get[Session](c, "open a session")(conn.Open(c.Ctx, 0))
	oldBuffer, oldLine, oldQueue := c.buffer(old, 4096), c.fence(old), c.queue(old)
	ctx, stop := context.WithCancel(c.Ctx)
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stop()

	var good, bad atomic.Int64
	for _, tenant := range []string{Alice, Bob} {
		clients.Go(func() {
			their, err := c.Stack.Dial(c.Ctx, tenant)
			if err != nil {
				c.Failf("connect as %s: %v", tenant, err)
				return
			}
			defer their.Close()

			for ctx.Err() == nil {
				switch err := c.live(their); {
				case err == nil:
					good.Add(1)
				case refusal(err, lost...) == "":
					bad.Add(1)
					time.Sleep(time.Millisecond)
				default:
					c.Failf("a client of %s: %v", tenant, err)
					return
				}
			}
		})
	}

	kills := max(c.Count(3, 20), 2)
	for range kills {
		had := good.Load()
		c.Eventually("clients get something done", func() error {
			if good.Load() == had && len(c.failures()) == 0 {
				return errors.New("nobody has")
			}
			return nil
		})
		time.Sleep(3 * time.Millisecond) // somewhere in the next round
		c.Must(c.Stack.Kill(c.Ctx, 0), "kill the driver")
		epoch = c.ready(conn, 0, epoch)
	}

	stop()
	clients.Wait()
	if len(c.failures()) > 0 {
		return
	}

	_, err := old.Describe(c.Ctx)
	c.Refused(err, "describe a session of an earlier epoch", gone...)
	_, err = old.Buffer(c.Ctx, 4096)
	c.Refused(err, "create a buffer in it", gone...)
	c.Refused(oldBuffer.Read(c.Ctx, 0, make([]byte, 8)), "read its buffer", gone...)
	_, err = oldLine.Wait(c.Ctx, 1, time.Second)
	c.Refused(err, "wait for its fence", gone...)
	_, err = oldQueue.Submit(c.Ctx, Command{Op: Fill, Dst: oldBuffer, Bytes: 64})
	c.Refused(err, "submit to its queue", gone...)
	for _, tenant := range []string{Alice, Bob, Carol} {
		c.nothingHeld(tenant)
	}

	after := c.settledDescriptors(before)
	c.That(after == before, "the manager had %d descriptors, and has %d after %d deaths", before, after, kills)
	c.normal(get[Session](c, "open a session")(conn.Open(c.Ctx, 0)))
	c.Notef("%d kills, epoch %d; %d rounds of clients went well, %d received a loss; %d descriptors before and after", kills, epoch, good.Load(), bad.Load(), before)
}

// live is one round of a client's life.
func (c *Case) live(conn Conn) error {
	ctx, cancel := c.brief()
	defer cancel()
	s, err := conn.Open(ctx, 0)
	if err == nil {
		_, err = right(ctx, c.Stack, s, outcome.DeviceLost)
		if cerr := s.Close(ctx); err == nil {
			err = cerr
		}
	}

	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errHangs) {
		return fmt.Errorf("a call hangs: %w", err)
	}

	if err != nil && gpuerr.CodeOf(err) == gpuerr.Internal {
		// Results may be wrong because the memory was lost with the driver: then
		// the session must have ended.
		if _, derr := s.Describe(ctx); derr != nil {
			return derr
		}
	}

	return err
}
