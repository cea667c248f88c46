package ring

import (
	"encoding/binary"
	"errors"
	"math"

	"capgpu/gpuerr"
)

// Push writes one entry, with the arguments of a launch: it sets the entry's
// count, inlineBytes and d itself. The driver sees it after Flush. When there is
// no room it answers gpuerr.QueueFull: flush, and take completions.
func (c *Client) Push(e *Entry, bindings []Binding, inline []byte) error {
	words := c.Bindings(len(bindings))
	for i := range bindings {
		b := &bindings[i]
		w := words[4*i : 4*i+4 : 4*i+4]
		w[0], w[1], w[2], w[3] = b.Buffer, b.Off, b.Len, 0
	}
	return c.PushWords(e, words, inline)
}

// Bindings returns where the caller may write the bindings of what it pushes next with
// PushWords, four words each (Buffer, Off, Len, 0), all of them. They are this process's own
// memory: the caller may find at any of them that the launch is none.
func (c *Client) Bindings(n int) []uint64 {
	const words = BindingBytes / 8
	if words*n > len(c.bindings) {
		c.bindings = make([]uint64, words*n)
	}
	return c.bindings[: words*n : words*n]
}

// PushWords is Push of bindings that are words already.
func (c *Client) PushWords(e *Entry, bindings []uint64, inline []byte) error {
	if err := c.hasRoom(); err != nil {
		return err
	}
	if e.Op != OpLaunch {
		if len(bindings)+len(inline) > 0 {
			return gpuerr.New(gpuerr.Invalid, "arguments: %v takes none", e.Op)
		}
		c.put(e)
		return nil
	}

	count, argBytes := 8*len(bindings)/BindingBytes, 8*uint64(len(bindings))+uint64(len(inline))
	if count > math.MaxUint16 || len(inline) > math.MaxUint16 || argBytes > uint64(c.ArgBytes) {
		return gpuerr.New(gpuerr.Invalid, "arguments: %d bindings and %d inline bytes exceed the queue's arena of %d bytes", count, len(inline), c.ArgBytes)
	}
	off, err := c.alloc(argBytes)
	if err != nil {
		return err
	}
	args := c.view.args[off/8:]
	copy(args, bindings)
	if len(inline) > 0 {
		putBytes(args[len(bindings):], inline)
	}
	e.SetArgs(off, count, len(inline))
	c.put(e)
	return nil
}

// PushReplay is Push for a replay: it sets the entry's count and d itself.
func (c *Client) PushReplay(e *Entry, patches []Patch) error {
	if e.Op != OpReplay || len(patches) > MaxPatches || len(patches)*PatchBytes > int(c.ArgBytes) {
		return gpuerr.New(gpuerr.Invalid, "patches: %d are more than %d, or exceed the queue's arena of %d bytes", len(patches), MaxPatches, c.ArgBytes)
	}
	if err := c.hasRoom(); err != nil {
		return err
	}
	bytes := uint64(len(patches)) * PatchBytes
	off, err := c.alloc(bytes)
	if err != nil {
		return err
	}
	words := c.view.args[off/8:]
	for i := range patches {
		w := patches[i].Words()
		copy(words[4*i:4*i+4], w[:])
	}
	e.Count = uint16(len(patches))
	e.D = uint64(off) | bytes<<32
	c.put(e)
	return nil
}

// Flush publishes what was pushed, and wakes the driver if it asked.
func (c *Client) Flush() error {
	if c.pushErr != nil || c.Staged() == 0 {
		return c.pushErr
	}
	storeRelease(&c.submitted, c.pushed)
	c.view.sqTail.Swap(c.pushed) // Swap: see view
	if c.asked(waitEntries) {
		c.pushErr = c.signal() // a driver that sleeps and was not woken is asked by nobody again
	}
	return c.pushErr
}

// Staged is how many entries were pushed and not flushed.
func (c *Client) Staged() int { return int(c.pushed - c.submitted.Load()) }

// Free is how many entries can be pushed now, arguments aside.
func (c *Client) Free() int {
	if c.pushErr != nil || c.lookAtHead() != nil {
		return 0
	}
	return int(uint64(c.Entries) - (c.pushed - c.seenHead))
}

// Mark is a point in what was pushed, for Rollback.
func (c *Client) Mark() uint64 { return c.pushed }

// Rollback forgets what was pushed since mark, so that a batch can be all or
// nothing. Entries that were flushed stay.
func (c *Client) Rollback(mark uint64) {
	mark = max(mark, c.submitted.Load())
	if c.pushErr != nil || mark >= c.pushed {
		return
	}
	c.pushed = mark
	if mark == c.seenHead {
		// All before the mark is taken: its arena bytes are free as well.
		c.arena.reset()
		return
	}
	c.arena.rollback(mark - 1)
}

// putBytes writes bytes as words, and fills the last one up with zeros.
func putBytes(to []uint64, b []byte) {
	for ; len(b) >= 8; to, b = to[1:], b[8:] {
		to[0] = binary.LittleEndian.Uint64(b)
	}
	if len(b) > 0 {
		var last [8]byte
		copy(last[:], b)
		to[0] = binary.LittleEndian.Uint64(last[:])
	}
}

// hasRoom says why no entry can be pushed, if none can.
func (c *Client) hasRoom() error {
	if c.pushErr == nil && c.pushed-c.seenHead >= uint64(c.Entries) {
		if err := c.lookAtHead(); err == nil && c.pushed-c.seenHead >= uint64(c.Entries) {
			return errQueueFull
		}
	}
	return c.pushErr
}

// alloc hands out bytes of the arena.
func (c *Client) alloc(n uint64) (off uint32, err error) {
	off, ok := c.arena.alloc(n)
	if !ok {
		if err := c.lookAtHead(); err != nil {
			return 0, err
		}
		if off, ok = c.arena.alloc(n); !ok {
			return 0, errQueueFull
		}
	}
	return off, nil
}

// put writes an entry. Its arguments are written.
func (c *Client) put(e *Entry) {
	e.store(c.view.entry(c.pushed))
	c.arena.pushed(c.pushed)
	c.pushed++
}

// lookAtHead learns how much the driver has taken.
func (c *Client) lookAtHead() error {
	head := c.view.sqHead.Load()
	if head < c.seenHead || head > c.submitted.Load() {
		c.pushErr = errDriverHead
		return c.pushErr
	}
	if head != c.seenHead {
		c.seenHead = head
		c.arena.release(head - 1)
		if head == c.pushed {
			c.arena.reset()
		}
	}
	return nil
}

// asked reports whether the driver sleeps for this, and takes the question away.
func (c *Client) asked(what uint32) bool {
	return c.view.sqWait.Load() == what && c.view.sqWait.CompareAndSwap(what, awake)
}

// signal wakes the driver. One that is gone is told by the completion side.
func (c *Client) signal() error {
	c.rung.Add(1)
	if err := c.wake.Signal(); err != nil && !errors.Is(err, gpuerr.Disconnected) {
		return err
	}
	return nil
}
