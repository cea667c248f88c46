package main

import (
	"context"
	"encoding/json"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/qemu/guest/tap"
)

// gone are the codes of objects that no longer exist, closed by either end.
var gone = []gpuerr.Code{gpuerr.Closed, gpuerr.Revoked, gpuerr.Disconnected, gpuerr.Stale}

// checkRevocation: closing an object closes everything below it at once, and a budget is a
// budget.
func (s *smoke) checkRevocation() {
	s.check("closing a session ends everything below it", func(c *check) {
		session, done := c.open()
		defer done()
		b, mem := newBuffer(c, session, 8192)
		mem[5000] = 0xaa
		f := tap.Get[*client.Fence](c.Check, "create a fence")(session.CreateFence(c.Ctx, 0))
		child := tap.Get[*client.Session](c.Check, "restrict")(session.Restrict(c.Ctx, client.Policy{Facet: client.FacetMemory}))
		p := tap.Get[*client.Program](c.Check, "open spin")(session.OpenProgram(c.Ctx, "spin"))
		q := tap.Get[*client.Queue](c.Check, "create a queue")(session.CreateQueue(c.Ctx, client.QueueOptions{}))
		_, err := q.Submit(&client.Launch{Program: p, Deadline: 5 * time.Second}, &client.Signal{Fence: f, Value: 1})
		c.Must(err, "submit")
		waited := make(chan error, 1)
		go func() {
			how, err := f.Wait(c.Ctx, 1)
			if err == nil && how.Kind == outcome.Revoked {
				err = gpuerr.Revoked
			}
			waited <- err
		}()
		start := time.Now()
		c.Must(session.Close(c.Ctx), "close the session")
		took := time.Since(start)
		c.That(took < 3*time.Second, "closing took %v", took)
		c.Refused(<-waited, "wait for its fence", gone...)
		_, err = session.CreateBuffer(c.Ctx, 4096, client.Storage)
		c.Refused(err, "create a buffer", gone...)
		_, err = f.State(c.Ctx)
		c.Refused(err, "ask its fence", gone...)
		_, err = q.Submit(&client.Fill{Buffer: b, Bytes: 4096})
		c.Refused(err, "submit to its queue", gone...)
		select {
		case <-child.Done():
		case <-time.After(wireAnswer):
			c.Fatalf("the session made from it is still there")
		}
		_, err = child.CreateFence(c.Ctx, 0)
		c.Refused(err, "use the session made from it", gone...)
		// The client keeps its mapping, but not the data in it, once it is reclaimed.
		for end := time.Now().Add(wireAnswer); mem[5000] != 0 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		c.That(mem[5000] == 0, "a closed buffer still holds %#x", mem[5000])
		c.Must(b.Unmap(), "unmap")
		c.Say("buffer, fence, program, queue, running work and a restricted session, in %v", took.Round(10*time.Microsecond))
	})
	s.check("a session ends with its socket", func(c *check) {
		w := c.rawSession()
		code, _, fds, err := w.call(msgCreateBuffer, append(u64(1<<20), u32(0)...))
		c.Must(err, "create a buffer")
		c.That(code == 0 && len(fds) == 1, "create a buffer: code %d", code)
		unix.Close(fds[0])
		c.That(s.status(c).sessions() > 0, "the session is not in the status")
		w.close()
		s.eventuallyNoSession(c)
	})
	s.check("a budget is a budget", func(c *check) {
		conn := tap.Get[*client.Conn](c.Check, "dial as "+poor)(client.Dial(c.Ctx, s.socket(poor)))
		defer conn.Close()
		session := tap.Get[*client.Session](c.Check, "open a session")(conn.Open(c.Ctx, 0))
		var refusal error
		var made uint64
		for refusal == nil {
			_, refusal = session.CreateBuffer(c.Ctx, 64<<10, client.Storage)
			if refusal == nil {
				made += 64 << 10
			}
			c.That(made <= poorBytes, "%d bytes were granted, the policy says %d", made, poorBytes)
		}
		c.Refused(refusal, "one buffer too many", gpuerr.Quota)
		e := gpuerr.From(refusal)
		c.That(made == poorBytes && e.Asked == 64<<10 && e.Available == 0, "%d bytes granted, then %v", made, refusal)
		c.Must(session.Close(c.Ctx), "close the session")
		again := tap.Get[*client.Session](c.Check, "open another session")(conn.Open(c.Ctx, 0))
		_, err := again.CreateBuffer(c.Ctx, poorBytes, client.Storage)
		c.Must(err, "create a buffer of all that came back")
		c.Must(again.Close(c.Ctx), "close it")
		c.Say("%v", e)
	})
}

// poorBytes is the device memory that the guest's policy gives tenant poor.
const poorBytes = 1 << 20

// status is the part of the driver's status report that this program uses.
type status struct {
	Tenants []struct {
		Sessions []struct {
			ID uint64 `json:"id"`
		} `json:"sessions"`
	} `json:"tenants"`
}

func (st status) sessions() int {
	n := 0
	for _, t := range st.Tenants {
		n += len(t.Sessions)
	}
	return n
}

func (s *smoke) status(c *check) status {
	raw := tap.Get[json.RawMessage](c.Check, "ask for the status")(s.conn.Status(c.Ctx, 0))
	var st status
	c.Must(json.Unmarshal(raw, &st), "parse the status")
	return st
}

// eventuallyNoSession waits until the driver has dismantled every session: a client's end of
// a socket does not tell when that is.
func (s *smoke) eventuallyNoSession(c *check) {
	ctx, cancel := context.WithTimeout(c.Ctx, wireAnswer)
	defer cancel()
	for {
		n := s.status(c).sessions()
		if n == 0 {
			return
		}
		select {
		case <-ctx.Done():
			c.Fatalf("%d sessions are still there", n)
		case <-time.After(pollEvery):
		}
	}
}
