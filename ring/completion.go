package ring

import (
	"math"
	"math/bits"

	"capgpu/gpuerr"
	"capgpu/outcome"
)

// Completion is how one entry ended.
type Completion struct {
	UserData    uint64 // the entry's
	Outcome     outcome.Outcome
	Code        gpuerr.Code // of an entry that was refused, else None
	DeviceNanos uint64      // travels with outcome OK only; of a signal: when its point ended, since the device was opened
	Available   uint64      // travels with gpuerr.Quota only
}

// A completion is four words of an array:
//
//	0  user data
//	1  outcome kind, cause << 8, trap kind << 16, lap << 24, code << 32, binding << 48
//	2  value: device time, offset of a trap, or amount available
//	3  workgroup, lane << 32
//
// The lap says how often the array was gone through, from 1, modulo 256. The memory begins
// as zeros, so a slot of the lap before has no completion yet. The first completion of those
// that are published together gets its word 1 last, and the client looks at that one: then
// everything behind it is there, up to a slot of the lap before.
const (
	completionWords = CompletionBytes / 8

	lapShift = 24
	lapMask  = 0xff << lapShift

	okWord = uint64(outcome.OK) // word 1 of one that ended ok, but for the lap
)

// lapOf is that of the completion at a position, of so many.
func lapOf(pos uint64, completions uint32) uint8 {
	return uint8(pos>>bits.TrailingZeros32(completions)) + 1
}

// lapIn is the lap that a word 1 has.
func lapIn(word uint64) uint8 { return uint8(word >> lapShift) }

// words is the completion as it lies in the ring. The one value field carries what
// the outcome makes of it.
func (c *Completion) words(lap uint8) (w [completionWords]uint64) {
	o := &c.Outcome
	w[0] = c.UserData
	w[1] = uint64(o.Kind) | uint64(o.Cause)<<8 | uint64(lap)<<lapShift | uint64(c.Code)<<32
	switch {
	case o.Kind == outcome.OK:
		w[2] = c.DeviceNanos
	case o.Cause == outcome.TrapCause:
		w[1] |= uint64(o.Trap.Kind)<<16 | uint64(o.Trap.Binding)<<48
		w[2] = o.Trap.Offset
		w[3] = uint64(o.Trap.Workgroup) | uint64(min(o.Trap.Lane, math.MaxUint16))<<32
	case c.Code == gpuerr.Quota:
		w[2] = c.Available
	}
	return w
}

// setWords reads all but the lap, and checks everything: the peer wrote it.
func (c *Completion) setWords(w *[completionWords]uint64) error {
	if w[1]&^lapMask != okWord || w[3] != 0 {
		return c.setAnyWords(w)
	}
	c.UserData, c.DeviceNanos, c.Available, c.Code = w[0], w[2], 0, gpuerr.None
	// Field by field, for the reason that Entry.SetLaunch has.
	o := &c.Outcome
	o.Kind, o.Cause = outcome.OK, outcome.NoCause
	t := &o.Trap
	t.Kind, t.Binding, t.Workgroup, t.Lane, t.Offset = outcome.NoTrap, 0, 0, 0, 0
	return nil
}

// setAnyWords is setWords of any completion, ordinary or not.
func (c *Completion) setAnyWords(w *[completionWords]uint64) error {
	*c = Completion{UserData: w[0], Code: gpuerr.Code(w[1] >> 32)}
	o := &c.Outcome
	o.Kind, o.Cause = outcome.Kind(w[1]), outcome.Cause(w[1]>>8)
	o.Trap = outcome.Trap{
		Kind: outcome.TrapKind(w[1] >> 16), Binding: uint16(w[1] >> 48),
		Workgroup: uint32(w[3]), Lane: uint32(w[3]>>32) & 0xffff,
	}
	value := w[2]
	trap := o.Cause == outcome.TrapCause

	switch {
	case !o.Valid() || o.Kind == outcome.Pending:
		return errBadCompletion
	case c.Code != gpuerr.None && !c.Code.Valid():
		return errBadCompletion
	case w[3]>>48 != 0:
		return errBadCompletion
	case !trap && (o.Trap.Kind != outcome.NoTrap || o.Trap.Binding != 0 || w[3] != 0):
		return errBadCompletion
	case o.Kind == outcome.OK && (o.Cause != outcome.NoCause || c.Code != gpuerr.None):
		return errBadCompletion
	case trap && c.Code != gpuerr.None:
		return errBadCompletion
	}

	switch {
	case o.Kind == outcome.OK:
		c.DeviceNanos = value
	case trap:
		o.Trap.Offset = value
	case c.Code == gpuerr.Quota:
		c.Available = value
	case value != 0:
		return errBadCompletion
	}
	return nil
}

var errBadCompletion = gpuerr.New(gpuerr.Protocol, "the driver wrote a completion that is not one; close the queue")
