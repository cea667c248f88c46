package gpu

import (
	"encoding/binary"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/ring"
)

// A recording is the bytes that a client makes a list of: entries as they lie in a
// ring, 64 bytes each, then the area that their arguments lie in, as in the arena of a
// ring. This file looks at the bytes alone; RecordList resolves them.

// Bounds of a recording. They are published (docs/wire.md).
const (
	MaxListEntries  = backend.MaxListEntries
	MaxListArgBytes = 64 << 10
)

type recording struct {
	entries, args []byte
	left          uint64 // argument bytes that the entries to come may have
}

// newRecording splits the bytes of a recording of so many entries.
func newRecording(b []byte, entries uint32) *recording {
	n := uint64(entries) * ring.EntryBytes
	return &recording{entries: b[:n], args: b[n:], left: uint64(len(b)) - n}
}

// entry reads the i-th entry, with its arguments, into t, and uses t's memory again.
// Entries are read in order, once each: together they have no more arguments than there
// are bytes for them, so that what is made of them is bounded by what was sent.
func (r *recording) entry(i int, t *ring.Taken) error {
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
