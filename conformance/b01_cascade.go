package conformance

import (
	"context"
	"time"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// cascade:
//
//	Given a session with buffers, fences, a blocked wait for a fence, work in flight, a
//	restricted session below it, and a buffer that another vat holds,
//	when the session is closed,
//	then every call on one of its objects ends as revoked or closed within the bound of
//	revocation, wherever the capability is by now; closing twice is harmless; and
//	nothing of it stays charged.
//
// Sources: seed 002; Magma Context2, PollChannelClosed; gVisor object.go; IGT
// close-execqueues-close-fd.
func cascade(c *Case) {
	s := c.session(Alice)
	bound := c.describe(s).RevokeBound
	var buffers []Buffer
	for range c.Count(16, 128) {
		buffers = append(buffers, c.buffer(s, 4096))
	}

	var lines []Fence
	for range c.Count(4, 32) {
		lines = append(lines, c.fence(s))
	}

	handed := get[Buffer](c, "hand a buffer on")(buffers[0].Elsewhere(c.Ctx))
	below := get[Session](c, "restrict")(s.Restrict(c.Ctx, client.Policy{Facet: client.FacetFull}))
	theirs, theirLine := c.buffer(below, 4096), c.fence(below)
	q := c.queue(s)
	const never = 30 * time.Second
	c.submit(q, c.work(s, Hang, never).Commands...)

	type end struct {
		what string
		o    outcome.Outcome
		err  error
		at   time.Time
	}

	ends := make(chan end, 3)
	wait := func(what string, f Fence) {
		o, err := f.Wait(c.Ctx, 1, never)
		ends <- end{what, o, err, time.Now()}
	}

	go wait("a wait for a fence", lines[0])
	go wait("a wait for a fence of the restricted session", theirLine)
	go func() {
		done, err := await(c.Ctx, q, 1)
		var o outcome.Outcome
		if err == nil {
			o = done[0].Outcome
		}
		ends <- end{"the work in flight", o, err, time.Now()}
	}()

	time.Sleep(20 * time.Millisecond) // so that they wait, mostly; a later caller must be refused as well

	began := time.Now()
	took := c.Within(bound, "closing the session", func() { c.Must(s.Close(c.Ctx), "close") })
	for range 3 {
		var e end
		select {
		case e = <-ends:
		case <-time.After(bound):
			c.Fatalf("%v after the close something still waits; the bound is %v", time.Since(began), bound)
		}
		c.That(e.at.Sub(began) <= bound, "%s ended %v after the close; the bound is %v", e.what, e.at.Sub(began), bound)
		if e.err == nil {
			c.That(e.o.Kind == outcome.Revoked, "%s ended %v", e.what, e.o)
		} else {
			c.Refused(e.err, e.what, gone...)
		}
	}

	calls := []struct {
		what  string
		local bool // a question about the client's own mapping, not to the service
		call  func(ctx context.Context) error
	}{
		{"describe the session", false, func(ctx context.Context) error { _, err := s.Describe(ctx); return err }},
		{"create a buffer", false, func(ctx context.Context) error { _, err := s.Buffer(ctx, 4096); return err }},
		{"create a fence", false, func(ctx context.Context) error { _, err := s.Fence(ctx); return err }},
		{"restrict", false, func(ctx context.Context) error {
			_, err := s.Restrict(ctx, client.Policy{Facet: client.FacetMemory})
			return err
		}},
		{"submit", false, func(ctx context.Context) error {
			_, err := q.Submit(ctx, Command{Op: Fill, Dst: buffers[1], Bytes: 4096})
			return err
		}},
		{"signal a fence", false, func(ctx context.Context) error { return lines[1].Signal(ctx, 7) }},
		{"ask a fence", false, func(ctx context.Context) error { _, _, err := lines[1].State(ctx); return err }},
		{"read a buffer", true, func(ctx context.Context) error { return buffers[1].Read(ctx, 0, make([]byte, 8)) }},
		{"read a buffer that another vat has", true, func(ctx context.Context) error { return handed.Read(ctx, 0, make([]byte, 8)) }},
		{"map a buffer anew", true, func(ctx context.Context) error { _, _, _, err := buffers[2].Export(ctx); return err }},
		{"describe the restricted session", false, func(ctx context.Context) error { _, err := below.Describe(ctx); return err }},
		{"create a buffer below", false, func(ctx context.Context) error { _, err := below.Buffer(ctx, 4096); return err }},
		{"read a buffer below", true, func(ctx context.Context) error { return theirs.Read(ctx, 0, make([]byte, 8)) }},
	}

	for _, x := range calls {
		ctx, cancel := context.WithTimeout(c.Ctx, bound)
		err := x.call(ctx)
		for err == nil && x.local && time.Since(began) < bound { // until this client has learned of it
			time.Sleep(time.Millisecond)
			err = x.call(ctx)
		}
		c.Refused(err, x.what, gone...)
		cancel()
	}

	// A lost object is closed: closing it once more is harmless.
	for what, f := range map[string]func(context.Context) error{
		"the session": s.Close, "a buffer": buffers[3].Close, "a fence": lines[1].Close, "the queue": q.Close, "the restricted session": below.Close,
	} {
		if err := f(c.Ctx); err != nil {
			c.Refused(err, "close "+what+" again", append([]gpuerr.Code{gpuerr.Closed}, gone...)...)
		}
	}

	c.nothingHeld(Alice)
	c.Notef("closed in %v of %v; 3 waiters and %d kinds of calls", took.Round(time.Microsecond), bound, len(calls))
}
