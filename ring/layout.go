package ring

import (
	"capgpu/gpuerr"
)

// Version is that of the layout and the protocol here. The driver writes it into the
// header, and Attach refuses any other.
const Version = 5

// Offsets of the header. A line that one side looks at while it waits has only words
// that the other side writes to wake it. sqHead and cqHead, which change as often and are
// looked at only when room is short, lie elsewhere: the first beside the words that are
// written once and read once, the second in a line of its own.
const (
	magic = 0x31474e4952504143 // "CAPRING1"

	offMagic       = 0x000
	offVersion     = 0x008
	offEntries     = 0x00c
	offCompletions = 0x010
	offArgBytes    = 0x014
	offSQ          = 0x018
	offCQ          = 0x01c
	offArena       = 0x020

	offSQHead = 0x038 // the driver's, like all before

	offSQTail = 0x040 // the client's, which the driver looks at
	offCQWait = 0x048

	offSQWait = 0x080 // the driver's, which the client looks at
	offState  = 0x084

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

// Bytes is how much memory a ring takes.
func (c Config) Bytes() uint64 { return layoutOf(c).bytes }

// layout says where in the memory everything lies.
type layout struct {
	Config
	completions   uint32
	sq, cq, arena uint32 // offsets
	bytes         uint64 // of all of it
}

// layoutOf places the parts one behind the other.
func layoutOf(c Config) layout {
	l := layout{Config: c, completions: 2 * c.Entries, sq: headerBytes}
	l.cq = l.sq + c.Entries*EntryBytes
	l.arena = l.cq + l.completions*CompletionBytes
	l.bytes = uint64(l.arena) + uint64(c.ArgBytes)
	return l
}

// header is the part that the driver writes once.
type header struct {
	magic                                   uint64
	version, entries, completions, argBytes uint32
	sq, cq, arena                           uint32
}

func (l layout) header() header {
	return header{
		magic: magic, version: Version, entries: l.Entries, completions: l.completions, argBytes: l.ArgBytes,
		sq: l.sq, cq: l.cq, arena: l.arena,
	}
}

// layout checks a header that a driver wrote; memBytes is what there is. A driver of
// another version is answered gpuerr.Version, which names both.
func (h header) layout(memBytes uint64) (layout, error) {
	bad := func(format string, args ...any) (layout, error) {
		return layout{}, gpuerr.New(gpuerr.Protocol, "ring header: "+format, args...)
	}
	l := layout{
		Config: Config{Entries: h.entries, ArgBytes: h.argBytes}, completions: h.completions,
		sq: h.sq, cq: h.cq, arena: h.arena,
	}

	if h.magic != magic {
		return bad("magic %#x is not that of a ring", h.magic)
	}
	if h.version != Version {
		return layout{}, gpuerr.New(gpuerr.Version, "the driver's rings are of version %d, this client's of version %d; install a client of the driver's release", h.version, Version)
	}
	if err := l.Config.check(); err != nil {
		return bad("%s", gpuerr.From(err).Msg)
	}
	if h.completions != 2*h.entries {
		return bad("completions: %d for %d entries", h.completions, h.entries)
	}

	// In 64 bits nothing here can overflow.
	l.bytes = uint64(h.arena) + uint64(h.argBytes)
	switch {
	case (h.sq|h.cq|h.arena)%lineBytes != 0:
		return bad("an offset is no multiple of %d", lineBytes)
	case h.sq < headerBytes,
		uint64(h.cq) < uint64(h.sq)+uint64(h.entries)*EntryBytes,
		uint64(h.arena) < uint64(h.cq)+uint64(h.completions)*CompletionBytes:
		return bad("the parts overlap")
	case l.bytes > memBytes:
		return bad("%d bytes are needed, the memory has %d", l.bytes, memBytes)
	}
	return l, nil
}
