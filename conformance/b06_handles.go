package conformance

import (
	"context"
	"regexp"

	"capgpu/client"
	"capgpu/gpuerr"
)

// handles:
//
//	Given two tenants with objects of their own,
//	when one names the other's objects, objects that it has freed, frees an object
//	twice, and names objects that never existed, and an earlier driver's,
//	then each is a typed refusal; nothing of the other's changes; and the refusal for a
//	foreign object equals the one for an object that never existed.
//
// Sources: Magma's unit tests of double import and release, BufferImportInvalid; seed 001
// INVALID_STREAM, INVALID_EVENT.
func handles(c *Case) {
	conn := c.dial(Alice)
	mine := c.open(conn)
	theirs := c.session(Bob)
	secret := c.buffer(theirs, 4096)
	for secret.ID() < 64 { // numbers are per session: choose one that Alice does not have
		secret = c.buffer(theirs, 4096)
	}

	want := []byte("nobody else's business")
	c.Must(secret.Write(c.Ctx, 0, want), "write")
	theirLine := c.fence(theirs)
	for theirLine.ID() < 64 {
		theirLine = c.fence(theirs)
	}

	q, own, line := c.queue(mine), c.buffer(mine, 4096), c.fence(mine)
	stale, staleLine := c.buffer(mine, 4096), c.fence(mine)
	c.Must(stale.Close(c.Ctx), "close a buffer")
	c.Must(staleLine.Close(c.Ctx), "close a fence")
	t := &table{c: c, s: mine, q: q, a: own, b: own, line: line}
	nowhere := strange{own, 0x7fff_fff1}

	foreign := []gpuerr.Code{gpuerr.Stale, gpuerr.Invalid, gpuerr.Closed}
	// A launch that is right except for its program. Cap'n Proto has no name for an
	// object of another connection: that name is local to the client.
	launch := c.work(theirs, Fault, 0).Commands[0]
	c.That(launch.Program != nil, "work that fails launches no program")
	for i := range launch.Bindings {
		launch.Bindings[i].Buffer = own
	}

	notGiven := append([]gpuerr.Code{gpuerr.Denied}, foreign...)
	rows := []row{
		{"fill a buffer of another tenant", foreign, "", t.try(func(x *Command) { x.Dst = secret }, Command{Op: Fill, Bytes: 64})},
		{"copy from it", foreign, "", t.try(func(x *Command) { x.Src = secret }, Command{Op: Copy, Dst: own, Bytes: 64})},
		{"fill a buffer that never was", foreign, "", t.try(func(x *Command) { x.Dst = nowhere }, Command{Op: Fill, Bytes: 64})},
		{"fill a closed buffer", foreign, "", t.try(func(x *Command) { x.Dst = stale }, Command{Op: Fill, Bytes: 64})},
		{"signal a fence of another tenant", foreign, "", t.try(func(x *Command) { x.Fence = theirLine }, Command{Op: Signal, Value: 1})},
		{"signal a closed fence", foreign, "", t.try(func(x *Command) { x.Fence = staleLine }, Command{Op: Signal, Value: 1})},
		{"wait for a closed fence", foreign, "", func(ctx context.Context) error { _, err := staleLine.Wait(ctx, 1, 0); return err }},
		{"read a closed buffer", foreign, "", func(ctx context.Context) error { return stale.Read(ctx, 0, make([]byte, 8)) }},
		{"launch a program of another tenant", notGiven, "", t.try(func(*Command) {}, launch)},
	}

	number := regexp.MustCompile(`[0-9]+`)
	said := map[string]string{}
	for _, r := range rows {
		err := r.call(c.Ctx)
		if why := refusal(err, r.codes...); why != "" {
			c.Failf("%s: %s", r.what, why)
			continue
		}
		said[r.what] = number.ReplaceAllString(err.Error(), "N")
	}

	if a, b := said["fill a buffer of another tenant"], said["fill a buffer that never was"]; a != b {
		c.Failf("a foreign buffer is told from one that never was: %q and %q", a, b)
	}

	got := make([]byte, len(want))
	c.Must(secret.Read(c.Ctx, 0, got), "read")
	c.That(string(got) == string(want), "the other tenant's buffer has changed to %q", got)
	reached, promised, err := theirLine.State(c.Ctx)
	c.Must(err, "ask the other's fence")
	c.That(reached == 0 && promised == 0, "the other tenant's fence was signalled to %d", max(reached, promised))
	if err := stale.Close(c.Ctx); err != nil {
		c.Refused(err, "close a closed buffer", gone...)
	}

	// The next object does not get an old name.
	for range 64 {
		b := c.buffer(mine, 4096)
		c.That(b.ID() != stale.ID(), "a new buffer has the name of a closed one")
		c.Must(b.Close(c.Ctx), "close")
	}

	// A weaker session's objects are not the stronger one's.
	below := get[Session](c, "restrict")(mine.Restrict(c.Ctx, client.Policy{Facet: client.FacetFull}))
	theirQueue := c.queue(below)
	bt := &table{c: c, s: below, q: theirQueue}
	c.Refused(bt.try(func(x *Command) { x.Dst = own }, Command{Op: Fill, Bytes: 64})(c.Ctx), "use a buffer of the session above", foreign...)

	epoch := c.epoch(conn, 0)
	c.Must(c.Stack.Kill(c.Ctx, 0), "kill the driver")
	c.ready(conn, 0, epoch)
	c.Refused(own.Read(c.Ctx, 0, got), "read a buffer of an earlier epoch", gone...)
	_, err = q.Submit(c.Ctx, Command{Op: Fill, Dst: own, Bytes: 64})
	c.Refused(err, "submit to a queue of an earlier epoch", gone...)
	fresh := c.open(conn)
	ft := &table{c: c, s: fresh, q: c.queue(fresh)}
	c.Refused(ft.try(func(x *Command) { x.Dst = own }, Command{Op: Fill, Bytes: 64})(c.Ctx), "use a buffer of an earlier epoch in this one", foreign...)
	c.normal(fresh)
	c.Notef("%d refusals, and those of an earlier epoch", len(rows)+2)
}

// strange is a buffer with a number that was never assigned.
type strange struct {
	Buffer
	id uint64
}

func (s strange) ID() uint64 { return s.id }
