package conformance

import (
	"bytes"

	"capgpu/outcome"
)

// dependency:
//
//	Given work A that fails, B of the same queue, C of another queue that waits for A's
//	fence, and D of a third that waits for the order only, all submitted before A begins,
//	and E of another session,
//	when A fails,
//	then B, C and D end as cancelled for a dependency and do not run, E runs, and so does
//	what is submitted when A's failure was reported.
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
	outputs := map[string]Buffer{"B": c.buffer(s, 4096), "C": c.buffer(s, 4096), "D": c.buffer(s, 4096)}
	for _, b := range outputs {
		c.Must(b.Write(c.Ctx, 0, mark), "write")
	}

	stranger := c.session(Bob)
	e, beside := c.work(stranger, Normal, 0), c.queue(stranger)

	size := min(a.Writes.Size(), n)
	q, across, ordered := c.queue(s), c.queue(s), c.queue(s)
	first := c.submit(q, append(append([]Command{{Op: Wait, Fence: gate, Value: 1}}, a.Commands...),
		Command{Op: Signal, Fence: line, Value: 1},
		Command{Op: Copy, Dst: outputs["B"], Src: a.Writes, Bytes: size})...)
	c.That(first == 1, "the first ticket of a queue is %d", first)
	c.submit(across, Command{Op: Wait, Fence: line, Value: 1}, Command{Op: Fill, Dst: outputs["C"], Bytes: n, Pattern: 0x33333333})
	c.submit(ordered, Command{Op: Wait, Fence: line, Value: 1, OrderOnly: true}, Command{Op: Fill, Dst: outputs["D"], Bytes: n, Pattern: 0x33333333})
	c.submit(beside, e.Commands...)
	c.Must(gate.Signal(c.Ctx, 1), "let A begin")

	done := c.completed(q, 4)
	c.Ended("A", done[1].Outcome, a.Want)
	c.Ended("B, of the same queue", done[3].Outcome, cancelled)
	theirs := c.completed(across, 2)
	c.Ended("C, which waits for A's fence", theirs[1].Outcome, cancelled)
	last := c.completed(ordered, 2)
	c.Ended("the wait for the order only", last[0].Outcome, outcome.Success)
	c.Ended("D, behind it", last[1].Outcome, cancelled)
	for _, x := range c.completed(beside, len(e.Commands)) {
		c.Ended("E, of another session", x.Outcome, outcome.Success)
	}
	got := make([]byte, n)
	for what, b := range outputs {
		c.Must(b.Read(c.Ctx, 0, got), "read")
		c.That(bytes.Equal(got, mark), "%s has run: it was cancelled, and its buffer has changed", what)
	}

	c.Must(e.Check(c.Ctx), "E's results")
	// Work that is submitted after the failure was reported is the client's own
	// decision.
	c.submit(q, Command{Op: Fill, Dst: a.Writes, Bytes: 4, Pattern: 7}, Command{Op: Copy, Dst: outputs["B"], Src: a.Writes, Bytes: 4})
	for _, x := range c.completed(q, 2) {
		c.Ended("work from after the failure was reported", x.Outcome, outcome.Success)
	}
}
