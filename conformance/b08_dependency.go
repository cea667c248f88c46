package conformance

import (
	"bytes"

	"capgpu/outcome"
)

// dependency:
//
//	Given work A that fails, B that reads what A writes, C of the same queue that does
//	not, D of another queue that waits for A's fence, and E of a third that waits for
//	the order only, all submitted before A begins,
//	when A fails,
//	then B and D end as cancelled for a dependency and do not run, and C and E run.
//
// Sources: Magma Mali TestDataDependency and TestOrderDependency; seed 003 fail_fast and
// collect_all.
func dependency(c *Case) {
	s := c.session(Alice)
	cancelled := outcome.Outcome{Kind: outcome.Cancelled, Cause: outcome.Dependency}
	gate, line := c.fence(s), c.fence(s)
	a := c.work(s, Fault, 0)

	// B's output is not zero before, which shows that B did not run.
	const n = 64
	mark := bytes.Repeat([]byte{0x5a}, n)
	y, z, d, e := c.buffer(s, 4096), c.work(s, Normal, 0), c.buffer(s, 4096), c.work(s, Normal, 0)
	for _, b := range []Buffer{y, d} {
		c.Must(b.Write(c.Ctx, 0, mark), "write")
	}

	size := min(a.Writes.Size(), n)
	q, across, ordered := c.queue(s), c.queue(s), c.queue(s)
	first := c.submit(q, append(append([]Command{{Op: Wait, Fence: gate, Value: 1}}, a.Commands...),
		Command{Op: Signal, Fence: line, Value: 1},
		Command{Op: Copy, Dst: y, Src: a.Writes, Bytes: size},
		z.Commands[0])...)
	c.That(first == 1, "the first ticket of a queue is %d", first)
	c.submit(across, Command{Op: Wait, Fence: line, Value: 1}, Command{Op: Fill, Dst: d, Bytes: n, Pattern: 0x33333333})
	c.submit(ordered, Command{Op: Wait, Fence: line, Value: 1, OrderOnly: true}, e.Commands[0])
	c.Must(gate.Signal(c.Ctx, 1), "let A begin")

	done := c.completed(q, 5)
	c.Ended("A", done[1].Outcome, a.Want)
	c.Ended("B, which reads what A would have written", done[3].Outcome, cancelled)
	c.Ended("C, which does not", done[4].Outcome, outcome.Success)
	theirs := c.completed(across, 2)
	c.Ended("D, which waits for A's fence", theirs[1].Outcome, cancelled)
	last := c.completed(ordered, 2)
	c.Ended("E, which waits for the order only", last[1].Outcome, outcome.Success)
	got := make([]byte, n)
	for what, b := range map[string]Buffer{"B": y, "D": d} {
		c.Must(b.Read(c.Ctx, 0, got), "read")
		c.That(bytes.Equal(got, mark), "%s has run: it was cancelled, and its buffer has changed", what)
	}

	c.Must(z.Check(c.Ctx), "C's results")
	c.Must(e.Check(c.Ctx), "E's results")
	// Work that is submitted after the failure was reported is the client's own
	// decision.
	c.submit(q, Command{Op: Fill, Dst: a.Writes, Bytes: 4, Pattern: 7}, Command{Op: Copy, Dst: y, Src: a.Writes, Bytes: 4})
	for _, x := range c.completed(q, 2) {
		c.Ended("work from after the failure was reported", x.Outcome, outcome.Success)
	}
}
