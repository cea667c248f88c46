package main

import (
	"time"

	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/qemu/guest/rpcpeer"
	"capgpu/qemu/guest/tap"
	"capgpu/schema"
)

// checkCrash: a driver that is killed takes its sessions along and nothing else;
// a successor serves in the next epoch.
func (s *smoke) checkCrash() {
	var over *rpcpeer.Peer
	var capSession schema.GpuSession
	var capBuffer schema.GpuBuffer
	s.check("kill -9 of the driver disconnects every capability", func(c *check) {
		session := tap.Get[*client.Session](c.Check, "open a session")(s.conn.Open(c.Ctx, 0))
		b, mem := newBuffer(c, session, 4096)
		f := tap.Get[*client.Fence](c.Check, "create a fence")(session.CreateFence(c.Ctx, 0))
		p := tap.Get[*client.Program](c.Check, "open spin")(session.OpenProgram(c.Ctx, "spin"))
		q := tap.Get[*client.Queue](c.Check, "create a queue")(session.CreateQueue(c.Ctx, client.QueueOptions{}))
		over = c.dialRPC(tenant)
		capSession = over.Open(c.Check, 0)
		capBuffer = over.Buffer(c.Check, capSession, 4096)
		_, err := q.Submit(&client.Launch{Program: p, Deadline: 5 * time.Second}, &client.Signal{Fence: f, Value: 1})
		c.Must(err, "submit")
		waited := make(chan error, 1)
		go func() {
			how, err := f.Wait(c.Ctx, 1)
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
			st, err := s.conn.NextState(c.Ctx, 0, s.epoch)
			lost <- told{st, err}
		}()

		c.Must(unix.Kill(s.driver, unix.SIGKILL), "kill the driver")

		c.Refused(<-waited, "wait for a fence of the dead driver", gpuerr.Disconnected, gpuerr.DeviceLost)
		select {
		case <-session.Done():
		case <-time.After(wireAnswer):
			c.Fatalf("the session does not notice")
		}
		c.Refused(session.Err(), "the session's cause", gpuerr.Disconnected, gpuerr.DeviceLost)
		_, err = session.CreateBuffer(c.Ctx, 4096, client.Storage)
		c.Refused(err, "create a buffer", gpuerr.Disconnected, gpuerr.DeviceLost)
		mem[0] = 1 // the client's mapping stays a mapping
		c.Must(b.Unmap(), "unmap")

		// The gate is a process of its own and learns of the death by itself.
		asked := over.SizeOf(c.Check, capBuffer)
		for end := time.Now().Add(wireAnswer); asked == nil && time.Now().Before(end); asked = over.SizeOf(c.Check, capBuffer) {
			time.Sleep(time.Millisecond)
		}
		c.Refused(asked, "ask a buffer over Cap'n Proto", gpuerr.Disconnected, gpuerr.DeviceLost)
		c.Refused(over.Describe(c.Check, capSession), "ask the session over Cap'n Proto", gpuerr.Disconnected, gpuerr.DeviceLost)
		first := <-lost
		c.Must(first.err, "wait for the loss")
		// A standby may be ready before the waiting client has looked.
		c.That(first.state.State == client.Recovering || first.state.State == client.Ready && first.state.Epoch > s.epoch,
			"the loss was told as %v in epoch %d (%s)", first.state.State, first.state.Epoch, first.state.Cause)
		c.Say("session, buffer, fence and waiters, on both paths")
	})
	s.check("lifecycle tells of the loss and of the successor", func(c *check) {
		c.That(over != nil, "there is no connection")
		// As the contract says: pass the epoch that the last call returned.
		epoch, seen := s.epoch, []string{}
		for {
			step := over.Next(c.Check, epoch)
			if len(seen) == 0 || seen[len(seen)-1] != step.State.String() {
				seen = append(seen, step.State.String())
			}
			epoch = step.Epoch
			if step.State == schema.DeviceState_ready && step.Epoch > s.epoch {
				break
			}
			c.That(step.State != schema.DeviceState_wedged, "the device is wedged: %s", step.Cause)
			select {
			case <-c.Ctx.Done():
				c.Fatalf("the device stays %v", step.State)
			case <-time.After(pollEvery):
			}
		}
		c.That(epoch == s.epoch+1, "ready in epoch %d after %d", epoch, s.epoch)
		s.epoch = epoch
		c.Say("%v, epoch %d", seen, epoch)
	})
	s.check("the successor serves on both paths", func(c *check) {
		before := s.driver
		s.driver = findDriver(c)
		c.That(s.driver != before, "the driver is the killed process")
		session, done := c.open()
		defer done()
		c.That(session.Epoch() == s.epoch, "session of epoch %d", session.Epoch())
		s.vecadd(c, session, 1<<10, false)
		c.Refused(over.Describe(c.Check, capSession), "use a session of the dead driver", gpuerr.Disconnected, gpuerr.DeviceLost)
		fresh := over.Open(c.Check, 0)
		c.Must(over.Describe(c.Check, fresh), "use a new session on the old connection")
		c.Must(over.CloseSession(c.Check, fresh), "close it")
		over.Close()
		c.Say("new sessions work, old ones stay disconnected")
	})
}
