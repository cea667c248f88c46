// Package ringtest has rings for tests: both ends within one process, wakes on virtual time
// (testing/synctest), and a hand that writes into the shared memory as a hostile client may.
package ringtest

import (
	"encoding/binary"
	"time"

	"capgpu/gpuerr"
	"capgpu/ring"
)

// Options are how the wakes of a ring behave; the zero value delivers each at once.
type Options struct {
	// Late says how long the next wake is on its way; negative: it never arrives. It is
	// called by the goroutine that wakes, one call at a time for each direction. nil: no time.
	Late func(toDriver bool) time.Duration
}

// Local is both ends of a ring within one process: the same memory, the same protocol,
// and wakes that are channels instead of pipes. Neither end looks before it sleeps.
type Local struct {
	Server *ring.Server
	Client *ring.Client

	memory   []byte
	toDriver *wake
}

// New makes a ring with both its ends.
func New(cfg ring.Config, o Options) (*Local, error) {
	l := &Local{memory: make([]byte, cfg.Bytes()), toDriver: newWake(o.Late, true)}
	toClient := newWake(o.Late, false)
	var err error
	l.Server, l.Client, err = ring.NewOver(cfg, l.memory, l.toDriver.ends(), toClient.ends())
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Wake wakes the driver, as a client may that has published nothing.
func (l *Local) Wake() { _ = sender{l.toDriver}.Signal() }

// Cut is the death of the driver's process: its end of the ring does nothing any more,
// and the client learns that it is gone.
func (l *Local) Cut() { l.Server.Drop() }

// Words of the header, for Corrupt: docs/wire.md.
const (
	WordSQTail = 0x40 / 8
	WordCQHead = 0xc0 / 8
)

// Ended is the code with which the driver closed the ring, None while it has not.
func (l *Local) Ended() gpuerr.Code {
	const wordState, shift = 0x80 / 8, 32
	return gpuerr.Code(load(l.memory, wordState) >> shift)
}

// Where the header says that the parts begin.
const (
	offSQ    = 0x18
	offArena = 0x20
)

// Corrupt writes a word of the shared memory, as a peer may that does not keep to the
// protocol: its index is counted in eight bytes.
func (l *Local) Corrupt(word int, change func(old uint64) uint64) {
	corrupt(l.memory, word, change)
}

// WordsOfEntry is where the words of the entry at a position begin, and how many.
func (l *Local) WordsOfEntry(pos uint64) (first, n int) {
	slot := int(pos % uint64(l.Server.Config().Entries))
	return (l.part(offSQ) + slot*ring.EntryBytes) / 8, ring.EntryBytes / 8
}

// WordsOfArena is where the arguments lie.
func (l *Local) WordsOfArena() (first, n int) {
	return l.part(offArena) / 8, int(l.Server.Config().ArgBytes) / 8
}

func (l *Local) part(off int) int { return int(binary.LittleEndian.Uint32(l.memory[off:])) }
