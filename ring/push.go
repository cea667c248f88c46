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
	c.pushMu.Lock()
	defer c.pushMu.Unlock()
	words := c.bindingsLocked(len(bindings))
	for i := range bindings {
		b := &bindings[i]
		w := words[4*i : 4*i+4 : 4*i+4]
		w[0], w[1], w[2], w[3] = b.Buffer, b.Off, b.Len, 0
	}
	_, err := c.pushLocked(e, len(bindings), inline)
	return err
}

// Submitter is the submission side of a client without its lock, for a caller that
// holds one of its own around every use of that side and around Close.
type Submitter struct{ c *Client }

// Submitter returns c's.
func (c *Client) Submitter() Submitter { return Submitter{c} }

// Bindings returns where the caller writes the bindings of what it pushes next, four words
// each (Buffer, Off, Len, 0), all of them.
//
// +checklocksignore: the caller has a lock in place of it.
func (s Submitter) Bindings(n int) []uint64 { return s.c.bindingsLocked(n) }

// Push is Client.Push, but for the bindings: as many as were asked for with Bindings. It
// returns the kept slot that says what was pushed.
//
// +checklocksignore: the caller has a lock in place of it.
func (s Submitter) Push(e *Entry, bindings int, inline []byte) (Kept, error) {
	return s.c.pushLocked(e, bindings, inline)
}

// Kept is a kept slot and what it says: another version of the same slot is another Kept.
// The zero value is none.
type Kept uint64

// Slot is the number of the slot, below Config.Slots.
func (k Kept) Slot() int { return int(uint8(k>>placeSlotShift)) - 1 }

// Expected is what came after the last one the last time, of what is in kept slots. Again
// pushes it once more, and what is expected then, n in all, with user data that count up from
// the one given. Who knows that this is what he would push, because Push returned this very
// Kept for it, saves the making and the comparing of all the words. A Kept that Push never
// returned may be of a slot that says nothing yet.
//
// +checklocksignore: the caller has a lock in place of it.
func (s Submitter) Expected() Kept {
	k := &s.c.keeper
	return Kept(k.slots[k.expected()].place)
}

// After is what is expected once the one before it is pushed that was expected.
//
// +checklocksignore: the caller has a lock in place of it.
func (s Submitter) After(before Kept) Kept {
	slots := s.c.keeper.slots
	return Kept(slots[slots[before.Slot()].after].place)
}

// Again is said at Expected. It returns how many it pushed: fewer than n with the error that
// the next one has.
//
// +checklocksignore: the caller has a lock in place of it.
func (s Submitter) Again(userData uint64, n int) (pushed int, err error) {
	if c := s.c; n == 1 { // without what pays for many only
		if err := c.roomLocked(); err != nil {
			return 0, err
		}
		c.pushedLocked(c.keeper.name(c.keeper.expected(), c.pushed), userData)
		return 1, nil
	}
	for pushed < n {
		if err := s.c.roomLocked(); err != nil {
			return pushed, err
		}
		pushed += s.c.againLocked(userData+uint64(pushed), n-pushed)
	}
	return pushed, nil
}

// againLocked pushes what is expected, at least once, for which there is room, and at most n
// times, as often as there is room for it before the places begin again. It returns how often.
//
// +checklocks:c.pushMu
func (c *Client) againLocked(user uint64, n int) int {
	pos := c.pushed
	places := c.view.places[pos&uint64(len(c.view.places)-1):]
	places = places[:min(n, len(places), int(uint64(c.Entries)-(pos-c.seenHead)))]
	c.keeper.again(pos, places)
	c.users.keepRun(pos, user, len(places))
	c.pushed = pos + uint64(len(places))
	return len(places)
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

// bindingsLocked is Submitter.Bindings.
//
// +checklocks:c.pushMu
func (c *Client) bindingsLocked(n int) []uint64 {
	const words = BindingBytes / 8
	if need := entryWords + words*n; need > len(c.said) {
		c.said = append(c.said, make([]uint64, need-len(c.said))...)
	}
	return c.said[entryWords : entryWords+words*n : entryWords+words*n]
}

// pushLocked pushes an entry whose bindings are in their place in c.said.
//
// +checklocks:c.pushMu
func (c *Client) pushLocked(e *Entry, bindings int, inline []byte) (Kept, error) {
	if err := c.roomLocked(); err != nil {
		return 0, err
	}
	words := uint64(entryWords)
	if e.Op == OpLaunch {
		argBytes := uint64(bindings)*BindingBytes + uint64(len(inline))
		if bindings > math.MaxUint16 || len(inline) > math.MaxUint16 || argBytes > uint64(c.ArgBytes) {
			return 0, gpuerr.New(gpuerr.Invalid, "arguments: %d bindings and %d inline bytes exceed the queue's arena of %d bytes", bindings, len(inline), c.ArgBytes)
		}
		e.SetArgs(0, bindings, len(inline))
		words += argWords(uint32(argBytes))
		if len(inline) > 0 {
			c.inlineLocked(entryWords+bindings*BindingBytes/8, inline)
		}
	} else if bindings+len(inline) > 0 {
		return 0, gpuerr.New(gpuerr.Invalid, "arguments: %v takes none", e.Op)
	}
	said := c.said[:words]
	e.store((*[entryWords]uint64)(said))
	place, err := c.keepLocked(e.Op, said)
	if err == nil && place == 0 {
		said[1] = e.UserData
		err = c.queueLocked(said)
	}
	if err != nil {
		return 0, err
	}
	c.pushedLocked(place, e.UserData)
	return Kept(place), nil
}

// keepLocked returns the place of a kept slot that says this, which is written if it has to
// be; 0: there is none for it.
//
// +checklocks:c.pushMu
func (c *Client) keepLocked(op Op, said []uint64) (place uint64, err error) {
	if len(said) > keptWords || !keeps(op) {
		return 0, nil
	}
	k := &c.keeper
	slot := k.find(said)
	if slot < 0 {
		slot = k.toWrite()
		if k.slots[slot].worn() {
			return 0, nil
		}
		if k.slots[slot].named > c.seenHead {
			if err := c.lookLocked(); err != nil || k.slots[slot].named > c.seenHead {
				return 0, err // the driver has not taken all that name it
			}
		}
		k.say(slot, said)
		copy(c.view.kept[slot][:], said)
	}
	return k.name(slot, c.pushed), nil
}

// queueLocked writes an entry to the submission queue, and its arguments to the arena.
//
// +checklocks:c.pushMu
func (c *Client) queueLocked(said []uint64) error {
	if args := said[entryWords:]; len(args) > 0 {
		off, err := c.allocLocked(8 * uint64(len(args)))
		if err != nil {
			return err
		}
		said[6] |= uint64(off)
		copy(c.view.args[off/8:], args)
	}
	*c.view.entry(c.pushed) = [entryWords]uint64(said)
	return nil
}

// inlineLocked writes inline bytes from a word of c.said on, and fills the last one up.
//
// +checklocks:c.pushMu
func (c *Client) inlineLocked(at int, inline []byte) {
	if need := at + int(argWords(uint32(len(inline)))); need > len(c.said) {
		c.said = append(c.said, make([]uint64, need-len(c.said))...)
	}
	for ; len(inline) >= 8; at, inline = at+1, inline[8:] {
		c.said[at] = binary.LittleEndian.Uint64(inline)
	}
	if len(inline) > 0 {
		var last [8]byte
		copy(last[:], inline)
		c.said[at] = binary.LittleEndian.Uint64(last[:])
	}
}

// roomLocked makes sure of room for an entry.
//
// +checklocks:c.pushMu
func (c *Client) roomLocked() error {
	if c.pushErr == nil && c.pushed-c.seenHead >= uint64(c.Entries) {
		if err := c.lookLocked(); err == nil && c.pushed-c.seenHead >= uint64(c.Entries) {
			return errQueueFull
		}
	}
	return c.pushErr
}

// allocLocked hands out bytes of the arena.
//
// +checklocks:c.pushMu
func (c *Client) allocLocked(n uint64) (off uint32, err error) {
	off, ok := c.arena.alloc(c.pushed, n)
	if !ok {
		if err := c.lookLocked(); err != nil {
			return 0, err
		}
		if off, ok = c.arena.alloc(c.pushed, n); !ok {
			return 0, errQueueFull
		}
	}
	return off, nil
}

// pushedLocked counts an entry that is written, with its arguments, and says where: its
// place, but for the position.
//
// +checklocks:c.pushMu
func (c *Client) pushedLocked(place, user uint64) {
	*c.view.place(c.pushed) = place | uint64(uint16(c.pushed))
	c.users.keep(c.pushed, user)
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
			c.arena.reset(head)
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
	storeRelease(&c.submitted, c.pushed)
	storeLast(c.view.sqLast, *c.view.place(c.pushed - 1))
	c.view.sqTail.Swap(c.pushed) // Swap: see view
	return c.asked(waitEntries), nil
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

// Free is how many entries can be pushed now, arguments aside.
func (c *Client) Free() int {
	c.pushMu.Lock()
	defer c.pushMu.Unlock()
	if c.pushErr != nil || c.lookLocked() != nil {
		return 0
	}
	return int(uint64(c.Entries) - (c.pushed - c.seenHead))
}
