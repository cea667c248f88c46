package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"capgpu/client"
	"capgpu/outcome"
	"capgpu/qemu/guest/tap"
)

// lossBound is how soon a session must know that its device is gone: the host tells the
// guest's kernel, that tells vfio's user, and the driver tells the clients. On a busy host an
// emulated guest takes long for that.
const (
	lossBound    = 3 * time.Second
	lossPatience = 10 * time.Second
)

// checkRemoval has the host pull edu1 out while bob works on it and alice on hers. It
// is the last thing that happens to it.
func (s *suite) checkRemoval() {
	s.Check("a function that is pulled out is deviceLost at once", func(c *tap.Check) {
		t := s.tenant(c, edu1)
		defer t.close()
		w := t.opened(c)
		idle := t.opened(c)
		src, dst := w.must(c, 1<<20), w.must(c, 1<<20)
		ticket, err := w.submit(copyOf(dst, src, 1<<20))
		c.Must(err, "submit")
		alices := s.bystander(c, edu0)

		if s.broken != "unplug" {
			// The host reads the console: see qemu.HostWish.
			fmt.Println("capgpu-host: device_del edu1")
		}
		start := time.Now()
		patience, cancel := context.WithTimeout(c.Ctx, lossPatience)
		defer cancel()
		done, err := w.await(patience, ticket)
		took := time.Since(start)
		if err == nil {
			c.That(done.Outcome.Kind == outcome.DeviceLost, "the copy ended %v", done.Outcome)
		} else {
			c.Refused(err, "the copy", ended...)
		}
		c.That(took <= lossBound, "it was told after %v, bound %v", took, lossBound)
		for _, session := range []*work{w, idle} {
			select {
			case <-session.Done():
			case <-c.Ctx.Done():
				c.Fatalf("a session does not notice")
			}
			c.Refused(session.Err(), "the session's end", ended...)
		}
		told := time.Since(start)
		c.That(told <= lossBound, "sessions ended after %v, bound %v", told, lossBound)
		for s.present(edu1) {
			c.That(c.Ctx.Err() == nil, "the manager keeps the function from going")
			time.Sleep(pollEvery)
		}
		gone := time.Since(start)
		state := tap.Get[client.State](c, "ask for the state")(t.conn.NextStateFor(c.Ctx, t.device, w.Epoch(), 0))
		c.That(state.State == client.Wedged, "the device is %v (%s)", state.State, state.Cause)
		_, err = t.conn.Open(c.Ctx, t.device)
		c.Refused(err, "open a session of it", ended...)
		runs := alices.quit(c)
		c.That(s.manager.running(), "the manager has ended")
		_, err = os.Stat("/dev/vfio/vfio")
		c.Must(err, "the container device")
		c.Say("told after %v, gone after %v; alice did %d rounds meanwhile", took.Round(time.Millisecond), gone.Round(time.Millisecond), runs)
	})
}
