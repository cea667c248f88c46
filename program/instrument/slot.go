package instrument

import (
	"encoding/binary"
	"fmt"

	"capgpu/outcome"
	"capgpu/program"
)

// The trap buffer: a head, then a slot for each entry. Words are little-endian.
const (
	HeadBytes = 256
	SlotBytes = 256

	// In the head.
	FirstOff = 0 // u32: the lowest entry that ended early; NoEntry before
	StopOff  = 4 // u32: not 0 ends loops; the host may write it at any time

	// In a slot, written by the program.
	SiteOff  = 0  // u32: 0 while nothing has happened
	LaneOff  = 4  // u32: LocalInvocationIndex
	GroupOff = 8  // 3 × u32: WorkgroupId
	IndexOff = 20 // MaxIndices × u32: the indices of the access

	// In a slot, written by Arm.
	RoundsOff  = 124 // u32: how many rounds the loops of a lane may have together
	LengthsOff = 128 // 32 × u32: the bindings' lengths in bytes
)

// NoEntry is the value of the word at FirstOff while no entry has ended early.
const NoEntry = 1<<32 - 1

// MaxIndices is the most indices of one access: arrays are nested 16 deep, and
// there may be a vector at the end.
const MaxIndices = 24

// PollRounds is how many rounds of loops a lane does between two looks at the stop
// word and the bound.
const PollRounds = 256

// MaxRounds is the largest bound of rounds.
const MaxRounds = 1 << 31

// BufferBytes is the size of the trap buffer for a list of entries.
func BufferBytes(entries int) int { return HeadBytes + SlotBytes*entries }

// SlotOff is the offset of an entry's slot.
func SlotOff(entry int) int { return BufferBytes(entry) }

// ArmHead makes the head of a trap buffer ready.
func ArmHead(head []byte) {
	clear(head[:HeadBytes])
	binary.LittleEndian.PutUint32(head[FirstOff:], NoEntry)
}

// ArmSlot makes the slot of an entry ready. lengths are those of the bindings in
// bytes, each below 4 GiB; rounds is the bound of rounds, at most MaxRounds, 0 for
// MaxRounds. The program counts in steps of PollRounds.
func ArmSlot(slot []byte, lengths []uint64, rounds uint32) error {
	if len(lengths) > program.MaxBindings {
		return fmt.Errorf("arm a trap slot: %d bindings, more than %d", len(lengths), program.MaxBindings)
	}

	clear(slot[:SlotBytes])
	for i, n := range lengths {
		if n > 1<<32-1 {
			return fmt.Errorf("arm a trap slot: binding %d has %d bytes, more than %d", i, n, uint32(1<<32-1))
		}
		binary.LittleEndian.PutUint32(slot[LengthsOff+4*i:], uint32(n))
	}

	if rounds == 0 || rounds > MaxRounds {
		rounds = MaxRounds
	}
	binary.LittleEndian.PutUint32(slot[RoundsOff:], rounds)
	return nil
}

// First is the entry in the head of a trap buffer that ended early, the lowest; ok
// is false if none did. Later entries have done nothing.
func First(head []byte) (entry uint32, ok bool) {
	entry = binary.LittleEndian.Uint32(head[FirstOff:])
	return entry, entry != NoEntry
}

// End is how an entry ended.
type End uint8

const (
	Whole   End = iota // every lane came to its end
	Trapped            // a lane did something undefined
	Stopped            // the stop word ended a loop
	TooLong            // a lane had more rounds than it may
)

var endNames = [...]string{"whole", "trapped", "stopped", "tooLong"}

func (e End) String() string {
	if int(e) < len(endNames) {
		return endNames[e]
	}
	return fmt.Sprintf("end(%d)", uint8(e))
}

// Report is what a slot says.
type Report struct {
	End    End
	Trap   outcome.Trap // of a lane that trapped. Otherwise only Workgroup and Lane mean something
	Source string       // "reduce.comp:12", where the module tells
}

// The sites that every program has; those of its own follow.
const (
	siteNone = iota
	siteStopped
	siteTooLong
	firstSite
)

// site is a place in the program where a lane may trap.
type site struct {
	kind    outcome.TrapKind
	binding uint16
	off     uint64 // what constant indices make
	terms   []siteTerm
	value   laid // of an access to a binding
	source  string
}

type siteTerm struct {
	stride uint64
	bound  uint64 // 0: not known here
}

// Decode reads the slot of an entry. The launch is the one that the slot was armed
// for: its grid, and the lengths of its bindings in bytes. A slot that the program
// cannot have written is an error.
func (p *Program) Decode(slot []byte, grid program.Dim3, lengths []uint64) (Report, error) {
	var s [SlotBytes / 4]uint32 // each word read once: the device may still write
	for i := range s {
		s[i] = binary.LittleEndian.Uint32(slot[4*i:])
	}

	n := s[SiteOff/4]
	if n == siteNone {
		return Report{}, nil
	}

	g := s[GroupOff/4:]
	if g[0] >= grid.X || g[1] >= grid.Y || g[2] >= grid.Z || s[LaneOff/4] >= program.MaxBlockThreads {
		return Report{}, fmt.Errorf("decode a trap slot: lane %d of workgroup %v is not of a grid %v", s[LaneOff/4], g[:3], grid)
	}

	t := outcome.Trap{Lane: s[LaneOff/4], Workgroup: g[0] + grid.X*(g[1]+grid.Y*g[2])}
	switch {
	case n == siteStopped:
		return Report{End: Stopped, Trap: t}, nil
	case n == siteTooLong:
		return Report{End: TooLong, Trap: t}, nil
	case uint64(n-firstSite) >= uint64(len(p.sites)):
		return Report{}, fmt.Errorf("decode a trap slot: site %d; the program has %d", n, firstSite+len(p.sites))
	}

	at := &p.sites[n-firstSite]
	t.Kind, t.Binding = at.kind, at.binding
	t.Offset = p.offset(at, s[IndexOff/4:], lengths)
	return Report{End: Trapped, Trap: t, Source: at.source}, nil
}

// offset is that of the first scalar of the access that is out of range.
func (p *Program) offset(at *site, indices []uint32, lengths []uint64) uint64 {
	off, outside := at.off, at.value.typ == nil
	for k, t := range at.terms {
		off += uint64(indices[k]) * t.stride
		outside = outside || t.bound != 0 && uint64(indices[k]) >= t.bound
	}

	length := uint64(0)
	if int(at.binding) < len(lengths) {
		length = lengths[at.binding]
	}

	if at.value.typ != nil {
		p.layout.visit(inBuffer, at.value, off, func(part, size uint64) bool {
			off = part
			return !outside && part+size <= length
		})
	}
	return off
}
