// Package recording reads the bytes that a client makes a list of: entries as they lie in a
// ring, 64 bytes each, then the area that their arguments lie in, as in the arena of a ring.
// It looks at the bytes alone; gpu.Session.RecordList resolves them.
package recording

import (
	"encoding/binary"

	"capgpu/gpuerr"
	"capgpu/ring"
)

// Recording is such bytes, which nobody else changes.
type Recording struct {
	entries, args []byte
	left          uint64 // argument bytes that the entries to come may have
}

// New splits the bytes of a recording of so many entries. There are as many bytes at least.
func New(b []byte, entries uint32) *Recording {
	n := uint64(entries) * ring.EntryBytes
	return &Recording{entries: b[:n], args: b[n:], left: uint64(len(b)) - n}
}

// Entry reads the i-th entry, with its arguments, into t, and uses t's memory again.
// Entries are read in order, once each: together they have no more arguments than there
// are bytes for them, so that what is made of them is bounded by what was sent.
func (r *Recording) Entry(i int, t *ring.Taken) error {
	b := r.entries[i*ring.EntryBytes:]
	t.Decode((*[ring.EntryBytes]byte)(b))
	t.Args = t.Args[:0]
	switch t.Op {
	case ring.OpLaunch, ring.OpCopy, ring.OpFill:
	default:
		return gpuerr.New(gpuerr.Invalid, "op: a list has launches, copies and fills, not %v", t.Op)
	}
	if err := ring.Check(&t.Entry, uint32(len(r.args))); err != nil {
		return err
	}
	if t.UserData != 0 || t.DeadlineMicros != 0 {
		return gpuerr.New(gpuerr.Invalid, "userData, deadlineMicros: must be 0; a replay has them")
	}
	if t.Op != ring.OpLaunch {
		return nil
	}
	off, n := t.ArgRange()
	if uint64(n) > r.left {
		return gpuerr.New(gpuerr.Invalid, "argBytes: with those before it there are more arguments than bytes for them; entries do not share any")
	}
	r.left -= uint64(n)
	args := r.args[off : off+n]
	for ; len(args) >= 8; args = args[8:] {
		t.Args = append(t.Args, binary.LittleEndian.Uint64(args))
	}
	if len(args) > 0 {
		var last [8]byte
		copy(last[:], args)
		t.Args = append(t.Args, binary.LittleEndian.Uint64(last[:]))
	}
	for k := range int(t.Count) {
		w := t.Args[4*k : 4*k+4]
		if w[0] == 0 || w[1]+w[2] < w[2] || w[3] != 0 {
			return gpuerr.New(gpuerr.Invalid, "binding %d: handle is 0, offset plus length overflows, or the zero field is not zero", k)
		}
	}
	return nil
}
