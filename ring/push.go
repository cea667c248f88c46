package ring

import (
	"errors"
	"math"

	"capgpu/gpuerr"
)

// Push writes one entry, with the arguments of a launch: it sets the entry's
// count, inlineBytes and d itself. The driver sees it after Flush. When there is
// no room it answers gpuerr.QueueFull: flush, and take completions.
func (c *Client) Push(e *Entry, bindings []Binding, inline []byte) error {
	c.pushMu.Lock()
	defer c.pushMu.Unlock()
	words, err := c.pushLocked(e, len(bindings), inline)
	if err != nil {
		return err
	}
	for i := range bindings {
		b := &bindings[i]
		w := words[4*i : 4*i+4 : 4*i+4]
		w[0], w[1], w[2], w[3] = b.Buffer, b.Off, b.Len, 0
	}
	return nil
}

// Submitter is the submission side of a client without its lock, for a caller that
// holds one of its own around every use of that side and around Close.
type Submitter struct{ c *Client }

// Submitter returns c's.
func (c *Client) Submitter() Submitter { return Submitter{c} }

// Push is Client.Push, but for the bindings: it returns where they lie in the ring, four
// words each (Buffer, Off, Len, 0), which the caller writes, all of them, before it flushes.
//
// +checklocksignore: the caller has a lock in place of it.
func (s Submitter) Push(e *Entry, bindings int, inline []byte) ([]uint64, error) {
	return s.c.pushLocked(e, bindings, inline)
}

// Flush is Client.Flush.
//
// +checklocksignore: the caller has a lock in place of it.
func (s Submitter) Flush() error {
	wake, err := s.c.publishLocked()
	if err != nil || !wake {
		return err
	}
	if err = s.c.signal(); err != nil {
		s.c.pushErr = err // the driver sleeps, and nothing will ask to wake it again
	}
	return err
}

// Staged is how many entries were pushed and not flushed.
//
// +checklocksignore: the caller has a lock in place of it.
func (s Submitter) Staged() int { return int(s.c.pushed - s.c.submitted.Load()) }

// pushLocked writes an entry and its inline bytes, and returns the words of its bindings.
//
// +checklocks:c.pushMu
func (c *Client) pushLocked(e *Entry, bindings int, inline []byte) (words []uint64, err error) {
	if c.pushErr != nil {
		return nil, c.pushErr
	}
	if c.pushed-c.seenHead >= uint64(c.Entries) {
		if err := c.lookLocked(); err != nil {
			return nil, err
		}
		if c.pushed-c.seenHead >= uint64(c.Entries) {
			return nil, errQueueFull
		}
	}
	slot := &c.view.sq[c.pushed&uint64(len(c.view.sq)-1)]
	if e.Op != OpLaunch {
		if bindings+len(inline) > 0 {
			return nil, gpuerr.New(gpuerr.Invalid, "arguments: %v takes none", e.Op)
		}
		e.store(slot)
	} else {
		argBytes := uint64(bindings)*BindingBytes + uint64(len(inline))
		if bindings > math.MaxUint16 || len(inline) > math.MaxUint16 || argBytes > uint64(c.ArgBytes) {
			return nil, gpuerr.New(gpuerr.Invalid, "arguments: %d bindings and %d inline bytes exceed the queue's arena of %d bytes", bindings, len(inline), c.ArgBytes)
		}
		off, ok := c.arena.alloc(argBytes)
		if !ok {
			if err := c.lookLocked(); err != nil {
				return nil, err
			}
			if off, ok = c.arena.alloc(argBytes); !ok {
				return nil, errQueueFull
			}
		}
		e.Count = uint16(bindings)
		e.C = e.C&^(0xffff<<16) | uint64(len(inline))<<16
		e.D = uint64(off) | argBytes<<32
		e.store(slot)
		words = c.view.args[off/8 : off/8+uint32(bindings)*(BindingBytes/8)]
		if len(inline) > 0 {
			copy(c.view.bytes[off+uint32(bindings)*BindingBytes:], inline)
		}
	}
	c.pushedLocked(e.UserData)
	return words, nil
}

// pushedLocked counts an entry that is in its place, with its arguments.
//
// +checklocks:c.pushMu
func (c *Client) pushedLocked(user uint64) {
	c.arena.pushed(c.pushed)
	storeUser(&c.users[c.pushed&uint64(len(c.users)-1)], user)
	c.pushed++
}

// lookLocked learns how much the driver has taken.
//
// +checklocks:c.pushMu
func (c *Client) lookLocked() error {
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

// Flush publishes what was pushed, and wakes the driver if it asked.
func (c *Client) Flush() error {
	wake, err := c.publish()
	if err == nil && wake {
		err = c.signal()
	}
	return err
}

// publish reports whether the driver asked to be woken.
func (c *Client) publish() (wake bool, err error) {
	c.pushMu.Lock()
	defer c.pushMu.Unlock()
	return c.publishLocked()
}

// publishLocked is publish.
//
// +checklocks:c.pushMu
func (c *Client) publishLocked() (wake bool, err error) {
	if c.pushErr != nil {
		return false, c.pushErr
	}
	if c.submitted.Load() == c.pushed {
		return false, nil
	}
	c.submitted.Store(c.pushed)
	c.view.sqTail.Swap(c.pushed) // Swap: see view
	return c.asked(waitEntries), nil
}

// asked reports whether the driver sleeps for this, and takes the question away.
func (c *Client) asked(what uint32) bool {
	return c.view.sqWait.Load() == what && c.view.sqWait.CompareAndSwap(what, awake)
}

// signal wakes the driver. One that is gone is told by the completion side.
func (c *Client) signal() error {
	if err := c.wake.Signal(); err != nil && !errors.Is(err, gpuerr.Disconnected) {
		return err
	}
	return nil
}

// Free is how many entries can be pushed now, arguments aside.
func (c *Client) Free() int {
	c.pushMu.Lock()
	defer c.pushMu.Unlock()
	if c.pushErr != nil || c.lookLocked() != nil {
		return 0
	}
	return int(uint64(c.Entries) - (c.pushed - c.seenHead))
}
