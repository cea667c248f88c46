package main

import (
	"time"

	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/schema"
)

// checkCrash: a driver that is killed takes its sessions along and nothing else;
// a successor serves in the next epoch.
func (s *smoke) checkCrash() {
	var over *rpcPeer
	var capSession schema.GpuSession
	var capBuffer schema.GpuBuffer
	s.check("kill -9 of the driver disconnects every capability", func(c *check) {
		session := get[*client.Session](c, "open a session")(s.conn.Open(c.ctx, 0))
		b, mem := newBuffer(c, session, 4096)
		f := get[*client.Fence](c, "create a fence")(session.CreateFence(c.ctx, 0))
		p := get[*client.Program](c, "open spin")(session.OpenProgram(c.ctx, "spin"))
		q := get[*client.Queue](c, "create a queue")(session.CreateQueue(c.ctx, client.QueueOptions{}))
		over = c.dialRPC(tenant)
		capSession = over.open(c)
		capBuffer = over.buffer(c, capSession, 4096)
		_, err := q.Submit(&client.Launch{Program: p, Deadline: 5 * time.Second}, &client.Signal{Fence: f, Value: 1})
		c.must(err, "submit")
		waited := make(chan error, 1)
		go func() {
			how, err := f.Wait(c.ctx, 1)
			if err == nil && how.Kind == outcome.DeviceLost {
				err = gpuerr.Disconnected
			}
			waited <- err
		}()

		type told struct {
			state client.State
			err   error
		}
		lost := make(chan told, 1)
		go func() {
			st, err := s.conn.NextState(c.ctx, 0, s.epoch)
			lost <- told{st, err}
		}()

		c.must(unix.Kill(s.driver, unix.SIGKILL), "kill the driver")

		c.refused(<-waited, "wait for a fence of the dead driver", gpuerr.Disconnected, gpuerr.DeviceLost)
		select {
		case <-session.Done():
		case <-time.After(wireAnswer):
			c.fatalf("the session does not notice")
		}
		c.refused(session.Err(), "the session's cause", gpuerr.Disconnected, gpuerr.DeviceLost)
		_, err = session.CreateBuffer(c.ctx, 4096, client.Storage)
		c.refused(err, "create a buffer", gpuerr.Disconnected, gpuerr.DeviceLost)
		mem[0] = 1 // the client's mapping stays a mapping
		c.must(b.Unmap(), "unmap")

		// The gate is a process of its own and learns of the death by itself.
		asked := over.sizeOf(c, capBuffer)
		for end := time.Now().Add(wireAnswer); asked == nil && time.Now().Before(end); asked = over.sizeOf(c, capBuffer) {
			time.Sleep(time.Millisecond)
		}
		c.refused(asked, "ask a buffer over Cap'n Proto", gpuerr.Disconnected, gpuerr.DeviceLost)
		c.refused(over.describe(c, capSession), "ask the session over Cap'n Proto", gpuerr.Disconnected, gpuerr.DeviceLost)
		first := <-lost
		c.must(first.err, "wait for the loss")
		c.that(first.state.State == client.Recovering, "the loss was told as %v (%s)", first.state.State, first.state.Cause)
		c.say("session, buffer, fence and waiters, on both paths; told as %v", first.state.State)
	})
	s.check("lifecycle tells of the loss and of the successor", func(c *check) {
		c.that(over != nil, "there is no connection")
		// As the contract says: pass the epoch that the last call returned.
		epoch, seen := s.epoch, []string{}
		for {
			step := over.next(c, epoch)
			if len(seen) == 0 || seen[len(seen)-1] != step.state.String() {
				seen = append(seen, step.state.String())
			}
			epoch = step.epoch
			if step.state == schema.DeviceState_ready && step.epoch > s.epoch {
				break
			}
			c.that(step.state != schema.DeviceState_wedged, "the device is wedged: %s", step.cause)
			select {
			case <-c.ctx.Done():
				c.fatalf("the device stays %v", step.state)
			case <-time.After(pollEvery):
			}
		}
		c.that(epoch == s.epoch+1, "ready in epoch %d after %d", epoch, s.epoch)
		s.epoch = epoch
		c.say("%v, epoch %d", seen, epoch)
	})
	s.check("the successor serves on both paths", func(c *check) {
		before := s.driver
		s.driver = findDriver(c)
		c.that(s.driver != before, "the driver is the killed process")
		session, done := c.open()
		defer done()
		c.that(session.Epoch() == s.epoch, "session of epoch %d", session.Epoch())
		s.vecadd(c, session, 1<<10, false)
		c.refused(over.describe(c, capSession), "use a session of the dead driver", gpuerr.Disconnected, gpuerr.DeviceLost)
		fresh := over.open(c)
		c.must(over.describe(c, fresh), "use a new session on the old connection")
		c.must(over.closeSession(c, fresh), "close it")
		over.close()
		c.say("new sessions work, old ones stay disconnected")
	})
}
