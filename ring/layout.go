package ring

import (
	"capgpu/gpuerr"
)

// Offsets of the header. A line that one side looks at while it waits has only words
// that the other side writes to wake it: sqHead and cqHead, which change as often and are
// looked at only when room is short, have lines of their own. What the driver wrote once
// is read once, so sqHead may lie beside it. What says that completions are there is the
// first word of them (completion.go), in a line that has no other side's words. sqLast lies
// beside sqTail, so that one line tells the driver of a single launch.
const (
	magic   = 0x31474e4952504143 // "CAPRING1"
	version = 4

	offMagic       = 0x000
	offVersion     = 0x008
	offEntries     = 0x00c
	offCompletions = 0x010
	offArgBytes    = 0x014
	offSQ          = 0x018
	offCQ          = 0x01c
	offArena       = 0x020
	offRecords     = 0x024
	offPlaces      = 0x028
	offKept        = 0x02c
	offSlots       = 0x030

	offSQHead = 0x038 // the driver's, like all before

	offSQTail = 0x040 // the client's, which the driver looks at
	offSQLast = 0x048
	offCQWait = 0x050

	offSQWait = 0x090 // the driver's, which the client looks at
	offState  = 0x094

	offCQHead = 0x0c0 // the client's

	headerBytes = 0x100
	lineBytes   = 64
)

// Values of the wait flags.
const (
	awake           = 0
	waitEntries     = 1 // sqWait: wake me when entries come; cqWait: when completions come
	waitCompletions = 2 // sqWait: wake me when completions are taken
)

// Config sizes a ring.
type Config struct {
	Entries  uint32 // of the submission queue: a power of two, MinEntries to MaxEntries
	ArgBytes uint32 // of the argument arena: a multiple of 64, 64 to MaxArgBytes
}

func (c Config) check() error {
	switch {
	case c.Entries < MinEntries || c.Entries > MaxEntries || c.Entries&(c.Entries-1) != 0:
		return gpuerr.New(gpuerr.Invalid, "entries: %d is no power of two from %d to %d", c.Entries, MinEntries, MaxEntries)
	case c.ArgBytes < lineBytes || c.ArgBytes > MaxArgBytes || c.ArgBytes%lineBytes != 0:
		return gpuerr.New(gpuerr.Invalid, "argBytes: %d is no multiple of %d from %d to %d", c.ArgBytes, lineBytes, lineBytes, MaxArgBytes)
	}
	return nil
}

// Slots is how many kept slots a ring has: a power of two.
func (c Config) Slots() int { return int(min(max(c.Entries/4, minKept), maxKept)) }

// Bytes is how much memory a ring takes.
func (c Config) Bytes() uint64 { return layoutOf(c).bytes }

// layout says where in the memory everything lies.
type layout struct {
	Config
	completions, slots                   uint32
	places, cq, kept, sq, records, arena uint32 // offsets
	bytes                                uint64 // of all of it
}

// layoutOf places the parts behind each other: first what every launch needs, then what
// it needs when it is new, then what few of them do.
func layoutOf(c Config) layout {
	l := layout{Config: c, completions: 2 * c.Entries, slots: uint32(c.Slots()), places: headerBytes}
	l.cq = l.places + max(c.Entries*WordBytes, lineBytes)
	l.kept = l.cq + max(l.completions*WordBytes, lineBytes)
	l.sq = l.kept + l.slots*KeptBytes
	l.records = l.sq + c.Entries*EntryBytes
	l.arena = l.records + l.completions*CompletionBytes
	l.bytes = uint64(l.arena) + uint64(c.ArgBytes)
	return l
}

// header is the part that the driver writes once.
type header struct {
	magic                                   uint64
	version, entries, completions, argBytes uint32
	sq, cq, arena, records, places, kept    uint32
	slots                                   uint32
}

func (l layout) header() header {
	return header{
		magic: magic, version: version, entries: l.Entries, completions: l.completions, argBytes: l.ArgBytes,
		sq: l.sq, cq: l.cq, arena: l.arena, records: l.records, places: l.places, kept: l.kept, slots: l.slots,
	}
}

// layout checks a header that a driver wrote; memBytes is what there is.
func (h header) layout(memBytes uint64) (layout, error) {
	bad := func(format string, args ...any) (layout, error) {
		return layout{}, gpuerr.New(gpuerr.Protocol, "ring header: "+format, args...)
	}
	l := layout{
		Config: Config{Entries: h.entries, ArgBytes: h.argBytes}, completions: h.completions, slots: h.slots,
		places: h.places, cq: h.cq, kept: h.kept, sq: h.sq, records: h.records, arena: h.arena,
	}
	if h.magic != magic || h.version != version {
		return bad("magic %#x, version %d; this is version %d", h.magic, h.version, version)
	}
	if err := l.Config.check(); err != nil {
		return bad("%s", gpuerr.From(err).Msg)
	}
	if h.completions != 2*h.entries {
		return bad("completions: %d for %d entries", h.completions, h.entries)
	}
	if h.slots != uint32(l.Slots()) {
		return bad("slots: %d for %d entries", h.slots, h.entries)
	}
	// In 64 bits nothing here can overflow.
	l.bytes = uint64(h.arena) + uint64(h.argBytes)
	switch {
	case (h.places|h.cq|h.kept|h.sq|h.records|h.arena)%lineBytes != 0:
		return bad("an offset is no multiple of %d", lineBytes)
	case h.places < headerBytes,
		uint64(h.cq) < uint64(h.places)+uint64(h.entries)*WordBytes,
		uint64(h.kept) < uint64(h.cq)+uint64(h.completions)*WordBytes,
		uint64(h.sq) < uint64(h.kept)+uint64(h.slots)*KeptBytes,
		uint64(h.records) < uint64(h.sq)+uint64(h.entries)*EntryBytes,
		uint64(h.arena) < uint64(h.records)+uint64(h.completions)*CompletionBytes:
		return bad("the parts overlap")
	case l.bytes > memBytes:
		return bad("%d bytes are needed, the memory has %d", l.bytes, memBytes)
	}
	return l, nil
}
