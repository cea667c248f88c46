package difftest

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"capgpu/gpu"
	"capgpu/gpu/gputest/refmodel"
	"capgpu/gpuerr"
)

// change makes or closes something, between two batches.
func (c *client) change() error {
	if c.kind == poisoned {
		return nil // nothing is made any more
	}
	switch c.n(8) {
	case 0:
		return c.renewBuffer()
	case 1:
		return c.renewProgram()
	case 2, 3, 4:
		return c.renewList()
	}
	return c.renewFence()
}

func (c *client) renewBuffer() error {
	if c.kind == spent {
		return nil // it could not be found out where a new one is
	}
	i := c.n(len(c.buffers))
	bytes := c.buffers[i].model.Bytes
	if err := c.session.DestroyBuffer(gpu.Handle(c.buffers[i].handle)); err != nil {
		return err
	}
	c.buffers = forget(c, c.buffers, i)
	return c.makeBuffer(bytes, c.usage())
}

func (c *client) renewProgram() error {
	if len(c.programs) == 0 {
		return nil
	}
	i := c.n(len(c.programs))
	which := int(c.programs[i].model.Number - programs[0].number)
	if err := c.session.CloseProgram(gpu.Handle(c.programs[i].handle)); err != nil {
		return err
	}
	c.programs = forget(c, c.programs, i)
	return c.openProgram(which)
}

// renewFence closes one that has no values left, if there is one, and else some one.
func (c *client) renewFence() error {
	i := c.n(len(c.fences))
	for k := range c.fences {
		if c.fences[k].model.Last() > 1<<62 {
			i = k
		}
	}
	if err := c.session.DestroyFence(gpu.Handle(c.fences[i].handle)); err != nil {
		return err
	}
	c.fences = forget(c, c.fences, i)
	return c.makeFence()
}

func (c *client) renewList() error {
	if len(c.lists) >= 6 {
		i := c.n(len(c.lists))
		if err := c.session.CloseList(gpu.Handle(c.lists[i].handle)); err != nil {
			return err
		}
		c.lists = forget(c, c.lists, i)
	}
	return c.makeList()
}

// makeList records what is mostly good, and compares what is said to it.
func (c *client) makeList() error {
	entries := make([]refmodel.Entry, 1+c.n(6))
	c.used = 0
	for i := range entries {
		e := &entries[i]
		switch c.n(3) {
		case 0:
			c.copy(e)
		case 1:
			c.fill(e)
		default:
			c.launch(e)
		}
		if e[1], e[0] = 0, e[0]&0xffffffff; c.n(8) == 0 {
			c.spoil(e)
		}
	}
	args := c.args[:c.used]
	at := c.record[:0]
	for i := range entries {
		for _, w := range entries[i] {
			at = binary.LittleEndian.AppendUint64(at, w)
		}
	}
	for _, w := range args {
		at = binary.LittleEndian.AppendUint64(at, w)
	}
	list, want := c.model.Record(entries, args)
	h, err := c.session.RecordList(gpu.Handle(c.recordBuf), 0, uint32(len(entries)), uint32(8*len(args)))
	if got := gpuerr.CodeOf(err); got != want {
		return fmt.Errorf("divergence: a recording of %x: the model says %v, the driver %v", entries, want, err)
	}
	if list != nil {
		c.model.Add(uint64(h), list)
		c.lists = append(c.lists, object[refmodel.List]{uint64(h), list})
	}
	return nil
}

// breach has the client break the rules of the ring: the queue ends, and another is made.
func (c *client) breach() error {
	r := c.queue.ring
	tails := [...]uint64{r.tail - 1, r.tail + r.entries + 1, 0, ^uint64(0), r.tail + 1<<32, r.tail - 1<<63}
	tail := tails[c.n(len(tails))]
	if tail == r.tail {
		return nil
	}
	if err := r.jump(tail); err != nil {
		return err
	}
	if err := c.queue.awaitEnd(gpuerr.Protocol); err != nil {
		return fmt.Errorf("divergence: a tail of %#x after %#x: %w", tail, r.tail, err)
	}
	if n := r.ready(); n != 0 {
		return fmt.Errorf("divergence: %d completions after a breach, of nothing", n)
	}
	return c.renewQueue()
}

func (c *client) renewQueue() (err error) {
	if err := c.session.CloseQueue(c.queue.handle); err != nil {
		return err
	}
	if err := c.queue.ring.close(); err != nil {
		return err
	}
	c.queue, err = c.openQueue(queueEntries, queueArgs)
	clear(c.args) // as the new arena is
	c.dirty = 0
	return err
}

// close ends the session.
func (c *client) close() error {
	for _, r := range []*rawRing{c.queue.ring, c.probe.ring} {
		if err := r.close(); err != nil {
			return err
		}
	}
	if err := unix.Munmap(c.record); err != nil {
		return err
	}
	for _, b := range c.buffers {
		c.bad = append(c.bad[:min(len(c.bad), 32)], b.handle)
	}
	return c.session.Close()
}
