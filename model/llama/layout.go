package llama

import (
	"capgpu/client"
)

// A layout decides which buffers there are and where everything lies in them.
// Tensors of one purpose share buffers, because a session has a bounded number of
// buffers and descriptors, and a large buffer can be on large pages.

// purpose is the use of a buffer.
type purpose uint8

const (
	weights  purpose = iota // the device's; copied there once
	cache                   // the device's: keys and values
	work                    // the device's: between the launches of a pass
	shared                  // mapped: the inputs and outputs of a pass
	purposes = iota
)

var purposeNames = [purposes]string{"weights", "cache", "work", "shared"}

// usage keeps in the device's own memory what the client never looks at, and allows programs to
// write where they must.
func (p purpose) usage() client.Usage {
	switch p {
	case weights:
		return client.Device | client.Upload
	case shared:
		return client.Storage
	}
	return client.Device
}

// pieceAlign is the alignment of pieces: a whole number of cache lines and of
// vectors.
const pieceAlign = 256

// packBytes is the length to which a buffer grows before another one is begun.
// Client and service fault in this much at once.
const packBytes = 64 << 20

// chargeBytes is the unit in which memory is charged.
const chargeBytes = 4096

// BufferPlan is a buffer that a model needs.
type BufferPlan struct {
	Name    string // of the first thing in it
	Bytes   uint64
	Usage   client.Usage
	Purpose string // "weights", "cache", "work", "shared"
}

// piece is a part of a buffer.
type piece struct {
	buffer     int
	off, bytes uint64
}

// part is a range of a piece.
func (p piece) part(off, bytes uint64) piece { return piece{p.buffer, p.off + off, bytes} }

type layout struct {
	pack    uint64
	buffers []BufferPlan
	last    [purposes]int // the buffer of each purpose that is being filled, plus 1
}

// place finds room.
func (l *layout) place(p purpose, name string, bytes uint64) piece {
	bytes = max((bytes+3)&^3, 4)
	if at := l.last[p]; at != 0 {
		b := &l.buffers[at-1]
		off := (b.Bytes + pieceAlign - 1) &^ (pieceAlign - 1)
		if off+bytes <= l.pack {
			b.Bytes = off + bytes
			return piece{at - 1, off, bytes}
		}
	}
	l.buffers = append(l.buffers, BufferPlan{Name: name, Bytes: bytes, Usage: p.usage(), Purpose: purposeNames[p]})
	if bytes < l.pack {
		l.last[p] = len(l.buffers)
	}
	return piece{len(l.buffers) - 1, 0, bytes}
}

func charged(bytes uint64) uint64 { return (bytes + chargeBytes - 1) &^ (chargeBytes - 1) }

// sum is the ledger's future charge for the buffers of a purpose.
func (l *layout) sum(p purpose) uint64 {
	var sum uint64
	for i := range l.buffers {
		if b := &l.buffers[i]; b.Purpose == purposeNames[p] {
			sum += charged(b.Bytes)
		}
	}
	return sum
}
