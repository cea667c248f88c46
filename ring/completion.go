package ring

import (
	"encoding/binary"
	"math"
	"math/bits"

	"capgpu/gpuerr"
	"capgpu/outcome"
)

// okWord is the second word of a completion that is ok.
const okWord = uint64(outcome.OK)

// A completion is one word of a dense array. That of an entry which ended ok says all of
// it; the rest is in a record of four words beside it:
//
//	bits 0 to 7    lap: how often the array was gone through, from 1, modulo 256
//	bit  8         1: there is a record
//	bits 9 to 15   0
//	bits 16 to 63  without a record: device time in nanoseconds; with one: 0
//
// A word of the lap before is none yet. Of what is published together the first word is
// stored last, and is what the client looks at: then everything behind it is there, up to
// a word of the lap before. User data of what is ok does not travel: completions come in
// the order of the entries, and the client has kept it.
const (
	wordRecord     = 1 << 8
	wordNanosShift = 16
	maxWordNanos   = 1<<(64-wordNanosShift) - 1
)

// lapOf is that of the completion at a position, of so many.
func lapOf(pos uint64, completions uint32) uint8 {
	return uint8(pos>>bits.TrailingZeros32(completions)) + 1
}

// okWordAt is the word of a completion that is ok, at a position.
func okWordAt(pos uint64, completions uint32, nanos uint64) uint64 {
	return uint64(lapOf(pos, completions)) | min(nanos, maxWordNanos)<<wordNanosShift
}

// fits reports whether a word says all of it.
func (c *Completion) fits() bool {
	o := &c.Outcome
	return o.Kind == outcome.OK && o.Cause == outcome.NoCause && c.Code == gpuerr.None && c.DeviceNanos <= maxWordNanos
}

// words is the completion as it lies in the ring, four u64. The one value field
// carries what the outcome makes of it.
func (c *Completion) words() [4]uint64 {
	o := &c.Outcome
	w := [4]uint64{
		0,
		uint64(o.Kind) | uint64(o.Cause)<<8 | uint64(c.Code)<<32,
	}
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

// setWords reads all but user data, and checks everything: the peer wrote it.
func (c *Completion) setWords(w *[4]uint64) error {
	if w[1] == okWord && w[0]|w[3] == 0 {
		c.SetOK(0, w[2])
		return nil
	}
	return c.setAnyWords(w)
}

// SetOK makes c that of an entry that ended ok: field by field, for the reason that
// Entry.SetLaunch has.
func (c *Completion) SetOK(userData, deviceNanos uint64) {
	c.UserData, c.DeviceNanos, c.Available, c.Code = userData, deviceNanos, 0, gpuerr.None
	o := &c.Outcome
	o.Kind, o.Cause = outcome.OK, outcome.NoCause
	t := &o.Trap
	t.Kind, t.Binding, t.Workgroup, t.Lane, t.Offset = outcome.NoTrap, 0, 0, 0, 0
}

// setAnyWords is setWords without the short way for an ordinary completion.
func (c *Completion) setAnyWords(w *[4]uint64) error {
	*c = Completion{Code: gpuerr.Code(w[1] >> 32)}
	o := &c.Outcome
	o.Kind, o.Cause = outcome.Kind(w[1]), outcome.Cause(w[1]>>8)
	o.Trap = outcome.Trap{
		Kind: outcome.TrapKind(w[1] >> 16), Binding: uint16(w[1] >> 48),
		Workgroup: uint32(w[3]), Lane: uint32(w[3]>>32) & 0xffff,
	}
	value := w[2]
	trap := o.Cause == outcome.TrapCause
	switch {
	case w[0] != 0:
		return errBadCompletion
	case !o.Valid() || o.Kind == outcome.Pending:
		return errBadCompletion
	case c.Code != gpuerr.None && !c.Code.Valid():
		return errBadCompletion
	case uint8(w[1]>>24) != 0 || w[3]>>48 != 0:
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

// Encode writes the 32 bytes of the wire.
func (c *Completion) Encode(b *[CompletionBytes]byte) {
	for i, w := range c.words() {
		binary.LittleEndian.PutUint64(b[8*i:], w)
	}
}

// Decode reads and checks them.
func (c *Completion) Decode(b *[CompletionBytes]byte) error {
	var w [4]uint64
	for i := range w {
		w[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return c.setWords(&w)
}
