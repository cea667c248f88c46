package main

import (
	"context"
	"encoding/binary"
	"math"
	"time"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/qemu/guest/tap"
)

// checkWork: a good client's work gives true results.
func (s *smoke) checkWork() {
	s.check("session opened", func(c *check) {
		session, done := c.open()
		defer done()
		d := tap.Get[client.Description](c.Check, "describe")(session.Describe(c.Ctx))
		c.That(d.Facet == client.FacetFull, "facet %v", d.Facet)
		c.That(d.HangBound > 0 && d.MaxBufferBytes > 0 && d.MaxQueueEntries > 0 && len(d.Programs) > 0, "bounds are missing: %+v", d)
		c.That(session.Epoch() == s.epoch, "session of epoch %d", session.Epoch())
		c.Say("facet %v, hang bound %v, %d programs", d.Facet, d.HangBound, len(d.Programs))
	})
	s.check("buffer created and mapped", func(c *check) {
		session, done := c.open()
		defer done()
		const size = 1 << 20
		b := tap.Get[*client.Buffer](c.Check, "create a buffer")(session.CreateBuffer(c.Ctx, size, client.Storage))
		mem := tap.Get[[]byte](c.Check, "map it")(b.Map())
		c.That(len(mem) == size, "mapped %d bytes", len(mem))
		for i, v := range mem {
			c.That(v == 0, "byte %d is %#x before anyone wrote it", i, v)
		}
		c.Say("%d bytes, all zero", size)
	})
	s.check("pattern written, copied by the device and read back", func(c *check) {
		session, done := c.open()
		defer done()
		const size = 256 << 10
		src, srcMem := newBuffer(c, session, size)
		dst, dstMem := newBuffer(c, session, size)
		for i := 0; i < size; i += 4 {
			binary.LittleEndian.PutUint32(srcMem[i:], uint32(i)*2654435761+1)
		}
		q := tap.Get[*client.Queue](c.Check, "create a queue")(session.CreateQueue(c.Ctx, client.QueueOptions{}))
		done1 := runAll(c, q, &client.Copy{Dst: dst, Src: src, Bytes: size})
		c.That(done1[0].Outcome == outcome.Success, "the copy ended %v (%v)", done1[0].Outcome, done1[0].Err)
		for i := 0; i < size; i += 4 {
			got, want := binary.LittleEndian.Uint32(dstMem[i:]), uint32(i)*2654435761+1
			c.That(got == want, "word at %d is %#x, want %#x", i, got, want)
		}
		c.Say("%d words, each right", size/4)
	})
	s.check("vecadd_f32", func(c *check) {
		session, done := c.open()
		defer done()
		const n = 100_000
		device := s.vecadd(c, session, n, s.broken == "vecadd")
		c.Say("%d elements, each right, %v on the device", n, device.Round(time.Microsecond))
	})
	s.check("synthetic job moves a fence", func(c *check) {
		session, done := c.open()
		defer done()
		b, mem := newBuffer(c, session, 4096)
		f := tap.Get[*client.Fence](c.Check, "create a fence")(session.CreateFence(c.Ctx, 0))
		q := tap.Get[*client.Queue](c.Check, "create a queue")(session.CreateQueue(c.Ctx, client.QueueOptions{}))
		const points = 3
		for v := uint64(1); v <= points; v++ {
			_, err := q.Submit(&client.Fill{Buffer: b, Bytes: 4096, Pattern: uint32(v)}, &client.Signal{Fence: f, Value: v})
			c.Must(err, "submit")
		}
		how := tap.Get[outcome.Outcome](c.Check, "wait for the fence")(f.Wait(c.Ctx, points))
		c.That(how == outcome.Success, "the last point ended %v", how)
		state := tap.Get[client.FenceState](c.Check, "ask the fence")(f.State(c.Ctx))
		c.That(state.Reached == points && state.Promised == points, "fence at %d of %d", state.Reached, state.Promised)
		c.That(binary.LittleEndian.Uint32(mem[4092:]) == points, "the last fill is not there")
		c.Say("value %d, outcome %v", state.Reached, how)
	})
	s.check("a program is loaded and run", func(c *check) { s.loadProgram(c) })
	s.check("trap ends failed, names where and poisons its session", func(c *check) {
		session, done := c.open()
		defer done()
		other, done2 := c.open()
		defer done2()
		b, _ := newBuffer(c, session, 4096)
		p := tap.Get[*client.Program](c.Check, "open trap")(session.OpenProgram(c.Ctx, "trap"))
		f := tap.Get[*client.Fence](c.Check, "create a fence")(session.CreateFence(c.Ctx, 0))
		q := tap.Get[*client.Queue](c.Check, "create a queue")(session.CreateQueue(c.Ctx, client.QueueOptions{}))
		how := runAll(c, q, &client.Launch{Program: p, Bindings: []client.Binding{{Buffer: b}}}, &client.Signal{Fence: f, Value: 1})[0].Outcome
		want := outcome.Trap{Kind: outcome.OutOfBounds, Binding: 0, Offset: 4096}
		c.That(how.Kind == outcome.Failed && how.Cause == outcome.TrapCause, "ended %v", how)
		c.That(how.Trap.Kind == want.Kind && how.Trap.Binding == want.Binding && how.Trap.Offset == want.Offset, "trap %+v, want %+v", how.Trap, want)
		at := tap.Get[outcome.Outcome](c.Check, "wait for the fence")(f.Wait(c.Ctx, 1))
		c.That(at.Kind == outcome.Failed, "the fence says %v", at)
		_, err := q.Submit(&client.Fill{Buffer: b, Bytes: 4096})
		c.Refused(err, "work after the trap", gpuerr.Poisoned)
		_, err = session.CreateBuffer(c.Ctx, 4096, client.Storage)
		c.Refused(err, "a buffer after the trap", gpuerr.Poisoned)
		d := tap.Get[client.Description](c.Check, "describe")(session.Describe(c.Ctx))
		c.That(d.Poisoned.Trap == how.Trap, "the session tells of %v", d.Poisoned)
		s.vecadd(c, other, 1<<10, false)
		c.Say("%v at binding %d offset %d; %v there, the next session works", how.Trap.Kind, how.Trap.Binding, how.Trap.Offset, gpuerr.Poisoned)
	})
	s.check("spin ends timedOut within the promised bound", func(c *check) {
		session, done := c.open()
		defer done()
		d := tap.Get[client.Description](c.Check, "describe")(session.Describe(c.Ctx))
		p := tap.Get[*client.Program](c.Check, "open spin")(session.OpenProgram(c.Ctx, "spin"))
		q := tap.Get[*client.Queue](c.Check, "create a queue")(session.CreateQueue(c.Ctx, client.QueueOptions{}))
		const deadline = 200 * time.Millisecond
		start := time.Now()
		how := runAll(c, q, &client.Launch{Program: p, Deadline: deadline})[0].Outcome
		took := time.Since(start)
		c.That(how.Kind == outcome.TimedOut, "ended %v", how)
		c.That(took >= deadline, "ended after %v, before its deadline of %v", took, deadline)
		c.That(took <= deadline+d.HangBound, "ended after %v; promised: %v after the deadline of %v", took, d.HangBound, deadline)
		c.Say("deadline %v, ended after %v, bound %v", deadline, took.Round(time.Millisecond), deadline+d.HangBound)
	})
}

// checkMemoryFlat: the bytes of a big launch are the client's and the device's,
// never copied into the service.
func (s *smoke) checkMemoryFlat() {
	s.check("the driver's own memory stays flat over a big vecadd", func(c *check) {
		session, done := c.open()
		defer done()
		const n = 4 << 20 // 16 MiB for each of the three buffers
		s.vecadd(c, session, 1<<10, false)
		before := anonymousKiB(c, s.driver)
		s.vecadd(c, session, n, false)
		after := anonymousKiB(c, s.driver)
		const allowedKiB = 8 << 10
		c.That(after-before < allowedKiB, "grew from %d to %d KiB", before, after)
		c.Say("%d MiB through the device, %d KiB more in the driver", 3*n*4>>20, max(after-before, 0))
	})
}

// newBuffer creates and maps a buffer; it goes with the session.
func newBuffer(c *check, s *client.Session, size uint64) (*client.Buffer, []byte) {
	b := tap.Get[*client.Buffer](c.Check, "create a buffer")(s.CreateBuffer(c.Ctx, size, client.Storage))
	return b, tap.Get[[]byte](c.Check, "map the buffer")(b.Map())
}

// runAll submits commands and returns their completions, in order.
func runAll(c *check, q *client.Queue, commands ...client.Command) []client.Completion {
	first, err := q.Submit(commands...)
	c.Must(err, "submit")
	all := make([]client.Completion, 0, len(commands))
	some := make([]client.Completion, len(commands))
	for len(all) < len(commands) {
		n, err := q.Completions(c.Ctx, some[:len(commands)-len(all)])
		c.Must(err, "wait for completions")
		all = append(all, some[:n]...)
	}
	for i, done := range all {
		c.That(done.Ticket == first+uint64(i), "completion %d has ticket %d, want %d", i, done.Ticket, first+uint64(i))
	}
	return all
}

// vecadd runs c = a + b and looks at every element. It returns the device time.
func (s *smoke) vecadd(c *check, session *client.Session, n int, sabotage bool) time.Duration {
	size := uint64(n) * 4
	a, aMem := newBuffer(c, session, size)
	b, bMem := newBuffer(c, session, size)
	sum, sumMem := newBuffer(c, session, size)
	for i := range n {
		binary.LittleEndian.PutUint32(aMem[4*i:], math.Float32bits(float32(i)))
		binary.LittleEndian.PutUint32(bMem[4*i:], math.Float32bits(float32(2*(i&0xffff))))
	}

	p := tap.Get[*client.Program](c.Check, "open vecadd_f32")(session.OpenProgram(c.Ctx, "vecadd_f32"))
	q := tap.Get[*client.Queue](c.Check, "create a queue")(session.CreateQueue(c.Ctx, client.QueueOptions{}))
	done := runAll(c, q, &client.Launch{Program: p, Bindings: []client.Binding{{Buffer: a}, {Buffer: b}, {Buffer: sum}}})[0]
	c.That(done.Outcome == outcome.Success, "ended %v (%v)", done.Outcome, done.Err)
	if sabotage {
		sumMem[4*(n/2)] ^= 1
	}

	for i := range n {
		got := math.Float32frombits(binary.LittleEndian.Uint32(sumMem[4*i:]))
		want := float32(i) + float32(2*(i&0xffff))
		if got != want {
			c.Fatalf("element %d is %g, want %g", i, got, want)
		}
	}

	for _, x := range []interface{ Close(context.Context) error }{q, p, a, b, sum} {
		c.Must(x.Close(c.Ctx), "close what vecadd used")
	}

	for _, mapped := range []*client.Buffer{a, b, sum} {
		c.Must(mapped.Unmap(), "unmap what vecadd used")
	}

	return done.DeviceTime
}
