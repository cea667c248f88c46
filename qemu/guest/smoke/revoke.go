package main

import (
	"context"
	"encoding/json"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// gone are the codes of what no longer exists, by whichever end it was closed.
var gone = []gpuerr.Code{gpuerr.Closed, gpuerr.Revoked, gpuerr.Disconnected, gpuerr.Stale}

// checkRevocation: what is closed takes everything below it along, at once, and
// a budget is a budget.
func (s *smoke) checkRevocation() {
	s.check("closing a session ends everything below it", func(c *check) {
		session, done := c.open()
		defer done()
		b, mem := newBuffer(c, session, 8192)
		mem[5000] = 0xaa
		f := get[*client.Fence](c, "create a fence")(session.CreateFence(c.ctx, 0))
		child := get[*client.Session](c, "restrict")(session.Restrict(c.ctx, client.Policy{Facet: client.FacetMemory}))
		p := get[*client.Program](c, "open spin")(session.OpenProgram(c.ctx, "spin"))
		q := get[*client.Queue](c, "create a queue")(session.CreateQueue(c.ctx, client.QueueOptions{}))
		_, err := q.Submit(&client.Launch{Program: p, Deadline: 5 * time.Second}, &client.Signal{Fence: f, Value: 1})
		c.must(err, "submit")
		waited := make(chan error, 1)
		go func() {
			how, err := f.Wait(c.ctx, 1)
			if err == nil && how.Kind == outcome.Revoked {
				err = gpuerr.Revoked
			}
			waited <- err
		}()
		start := time.Now()
		c.must(session.Close(c.ctx), "close the session")
		took := time.Since(start)
		c.that(took < 3*time.Second, "closing took %v", took)
		c.refused(<-waited, "wait for its fence", gone...)
		_, err = session.CreateBuffer(c.ctx, 4096, client.Storage)
		c.refused(err, "create a buffer", gone...)
		_, err = f.State(c.ctx)
		c.refused(err, "ask its fence", gone...)
		_, err = q.Submit(&client.Fill{Buffer: b, Bytes: 4096})
		c.refused(err, "submit to its queue", gone...)
		select {
		case <-child.Done():
		case <-time.After(wireAnswer):
			c.fatalf("the session made from it is still there")
		}
		_, err = child.CreateFence(c.ctx, 0)
		c.refused(err, "use the session made from it", gone...)
		// The client keeps its mapping, but not what was in it.
		c.that(mem[5000] == 0, "a closed buffer still holds %#x", mem[5000])
		c.must(b.Unmap(), "unmap")
		c.say("buffer, fence, program, queue, running work and a restricted session, in %v", took.Round(10*time.Microsecond))
	})
	s.check("a session ends with its socket", func(c *check) {
		w := c.rawSession()
		code, _, fds, err := w.call(msgCreateBuffer, append(u64(1<<20), u32(0)...))
		c.must(err, "create a buffer")
		c.that(code == 0 && len(fds) == 1, "create a buffer: code %d", code)
		unix.Close(fds[0])
		c.that(s.status(c).sessions() > 0, "the session is not in the status")
		w.close()
		s.eventuallyNoSession(c)
	})
	s.check("a budget is a budget", func(c *check) {
		conn := get[*client.Conn](c, "dial as "+poor)(client.Dial(c.ctx, s.socket(poor)))
		defer conn.Close()
		session := get[*client.Session](c, "open a session")(conn.Open(c.ctx, 0))
		var refusal error
		var made uint64
		for refusal == nil {
			_, refusal = session.CreateBuffer(c.ctx, 64<<10, client.Storage)
			if refusal == nil {
				made += 64 << 10
			}
			c.that(made <= poorBytes, "%d bytes were granted, the policy says %d", made, poorBytes)
		}
		c.refused(refusal, "one buffer too many", gpuerr.Quota)
		e := gpuerr.From(refusal)
		c.that(made == poorBytes && e.Asked == 64<<10 && e.Available == 0, "%d bytes granted, then %v", made, refusal)
		c.must(session.Close(c.ctx), "close the session")
		again := get[*client.Session](c, "open another session")(conn.Open(c.ctx, 0))
		_, err := again.CreateBuffer(c.ctx, poorBytes, client.Storage)
		c.must(err, "create a buffer of all that came back")
		c.must(again.Close(c.ctx), "close it")
		c.say("%v", e)
	})
}

// poorBytes is the device memory that the guest's policy gives tenant poor.
const poorBytes = 1 << 20

// status is what this program needs of the driver's status report.
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
	raw := get[json.RawMessage](c, "ask for the status")(s.conn.Status(c.ctx, 0))
	var st status
	c.must(json.Unmarshal(raw, &st), "parse the status")
	return st
}

// eventuallyNoSession waits until the driver has dismantled every session: its
// client's end of a socket tells nobody when that is.
func (s *smoke) eventuallyNoSession(c *check) {
	ctx, cancel := context.WithTimeout(c.ctx, wireAnswer)
	defer cancel()
	for {
		n := s.status(c).sessions()
		if n == 0 {
			return
		}
		select {
		case <-ctx.Done():
			c.fatalf("%d sessions are still there", n)
		case <-time.After(pollEvery):
		}
	}
}
