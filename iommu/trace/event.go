package trace

import (
	"encoding/binary"
	"fmt"
	"time"

	"capgpu/iommu"
)

// Kind is the kernel's action.
type Kind uint32

const (
	Map Kind = iota + 1
	Unmap
)

func (k Kind) String() string {
	switch k {
	case Map:
		return "map"
	case Unmap:
		return "unmap"
	}
	return fmt.Sprintf("Kind(%d)", uint32(k))
}

// Event is one call of the kernel's IOMMU layer: for a mapping of vfio one per
// physically contiguous piece.
type Event struct {
	Time time.Duration // CLOCK_MONOTONIC
	// TGID and TID are the process and thread of its context, numbered as the process that
	// called Open sees them.
	TGID, TID uint32
	Kind      Kind
	IOVA      iommu.IOVA
	Bytes     uint64 // asked for
	// Unmapped is how much an Unmap found and took away. Less than Bytes is a caller's error;
	// more, when the kernel cannot split a large page.
	Unmapped uint64
}

// Layout of an event in the ring; the programs write it.
const (
	offTime     = 0
	offTID      = 8
	offTGID     = 12
	offKind     = 16
	offIOVA     = 24
	offBytes    = 32
	offUnmapped = 40
	eventBytes  = 48
)

func decode(b []byte) (Event, bool) {
	if len(b) < eventBytes {
		return Event{}, false
	}
	e := binary.NativeEndian
	return Event{
		Time: time.Duration(e.Uint64(b[offTime:])),
		TID:  e.Uint32(b[offTID:]), TGID: e.Uint32(b[offTGID:]), Kind: Kind(e.Uint32(b[offKind:])),
		IOVA: iommu.IOVA(e.Uint64(b[offIOVA:])), Bytes: e.Uint64(b[offBytes:]), Unmapped: e.Uint64(b[offUnmapped:]),
	}, true
}
